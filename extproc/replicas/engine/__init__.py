"""What the model servers tell of themselves: their metrics, load reports and cache events."""
