"""Coverage-guided fuzzing of all that reads what others wrote: ``make fuzz``."""
