"""The dashboard: one page, what it shows, and what it can be asked."""
