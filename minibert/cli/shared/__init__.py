"""What the commands share: the parser, common flags, reading texts, showing errors."""
