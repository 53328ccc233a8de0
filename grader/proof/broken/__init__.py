"""Hand-ins that are broken rather than wrong, and what their authors must be told.

A module holds `broken(files)`, which changes the staff solution's files in place, or
`upload(files)`, which returns the bytes that are uploaded. Its docstring says what is the matter,
and in fields:

    loses: exercises that get no point, "nothing" if the hand-in is accepted as it is
    says: what the student must read (as often as there is something)
    staff: what the staff must read
"""
