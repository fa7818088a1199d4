"""What a person sees in a terminal: panels, tables, plain lines.

launch/ shows its figures with these; nothing in here starts or changes anything.
"""
