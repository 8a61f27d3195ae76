"""Which method for a small table?  Log loss, calibration and time of hmcgp and of what people use, on public tables.

python -m scripts.study                                             all that is missing: many hours
python -m scripts.study --repeats 1 --contenders logistic default/smooth
python -m scripts.study --quick --output quick.csv                  two tables, six contenders, half a minute
python -m scripts.study.coverage                                    coverage of intervals, on simulated data
python -m scripts.study.analysis                                    tables and pictures of README.md
"""
