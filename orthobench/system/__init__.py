"""What the product asks of the operating system: files, processes, signals, output."""
