"""Recurrences with a matrix as state, the core of linear attention, state-space layers and delta
rules:

    S_t = (I - w_t r_t^T) Diag(e^{g_t}) S_{t-1} + w_t u_t^T                     o_t = q_t^T S_t        recur
    S_t = Diag(e^{g_t}) S_{t-1} + b_t (a_t^T S_{t-1}) + k_t v_t^T               o_t = q_t^T S_t        recur_dplr

Each has two forms that agree within rounding, for every length of a chunk: a scan over tokens
(`forms`), and chunks of tokens that are computed by matrix products (`chunks`). `forms` says which one
runs where.
`descent` has the recurrence whose state is a model that learns.
"""

from attnlab.layers.recurrence.descent import Examples as Examples
from attnlab.layers.recurrence.descent import Layers as Layers
from attnlab.layers.recurrence.descent import begun as begun
from attnlab.layers.recurrence.descent import descend as descend
from attnlab.layers.recurrence.descent import together as together
from attnlab.layers.recurrence.forms import empty as empty
from attnlab.layers.recurrence.forms import recur as recur
from attnlab.layers.recurrence.forms import recur_dplr as recur_dplr
