"""Results that nobody measured, made by code from an honest set: what the staff's rules must note.

    forge       a folder of results that can be changed and stays consistent
    honest      further honest sets, drawn from a measured one with the noise that was measured
    formulas, edits, copies    the fabrications, one function each
    timer_aware the same by somebody who knows the GPU timer's tick
    tally       who notes what

The forger is competent: files are complete, derived columns follow, sidecars fit.  Run
`python -m grader.proof.fabrications FOLDER...` with folders of honest results for the table.
"""
