"""The paper's studies on trained models: what the approximations cost (Section IV), and the self-guided loop (V).

Measurements only: `benchmarks/error_study.py` and `benchmarks/loop_study.py` run them, `report/study_figures.py` draws
them, `docs/lab/studies.md` reads them.
"""
