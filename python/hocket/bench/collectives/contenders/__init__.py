"""What is measured, one contender per file; `contender.py` says what one must do, `catalogue.py` lists them."""
