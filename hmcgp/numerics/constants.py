"""Numbers that several rooms share."""

import math

EPS = 2.2e-16  # relative rounding of a float64, to two digits: it scales bounds, in which more would not count
LOG_2PI = math.log(2.0 * math.pi)
HALF_LOG_2PI = 0.5 * LOG_2PI
