"""What the extraction ladder (`diagnostics.scoring.letters`) stands on.

`characters` turns the letters and digits of any script into plain capitals, `reply` finds the part of a
reply that answers, `cues` holds the words that announce an answer, `texts` recognises an option by its text.
"""
