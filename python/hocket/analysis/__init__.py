"""What a trace says of a job's communication: one question per file, `analyse` asks them all. Knows files through `formats`."""
