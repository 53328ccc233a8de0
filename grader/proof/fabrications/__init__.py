"""Results that nobody measured, made by code from an honest set: what the staff's rules must note.

    forge       a folder of results that can be changed and stays consistent
    honest      further honest sets, drawn from a measured one with the noise that was measured
    formulas, edits, copies    the fabrications, one function each
    timer_aware the same by somebody who knows the GPU timer's tick
    tally       who notes what

The forger is competent: files are complete, derived columns follow, sidecars fit.
`python -m grader.proof.fabrications` prints the table, for our honest sets or for folders given.
A fabrication counts as noted by rules that are silent about the honest set it was made from.
"""
