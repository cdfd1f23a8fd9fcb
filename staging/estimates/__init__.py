"""When a transfer will be done: what links have shown, and the numbers that every page shows."""
