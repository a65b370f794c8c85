"""The two intermediate representations, pure data: tensor programs (`tensor`) and loop nests (`kernel`)."""
