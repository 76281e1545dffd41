"""Arrays in .npz files that may be damaged, or written by somebody else. Importing needs no numpy."""

import io
from typing import TYPE_CHECKING

from attnlab.records.json_kinds import Damaged

if TYPE_CHECKING:
    import numpy as np


def arrays_of(content: bytes) -> "dict[str, np.ndarray]":
    """Returns the arrays of the .npz file with these bytes, by name; raises Damaged for any other
    content, and for arrays of Python objects, since unpickling them could run code.

    Raises:
      Damaged: no .npz file, one of objects (which could run code), or one that cannot be read.
    """
    import numpy as np

    try:
        with np.load(io.BytesIO(content), allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
    except Exception as error:  # zipfile, its decoders and numpy's parser raise a dozen kinds
        reason = str(error).partition("\n")[0] or type(error).__name__
        raise Damaged(f"no .npz file of plain arrays: {reason}") from error
    for name, array in arrays.items():
        if not isinstance(array, np.ndarray):  # bytes, where numpy's mark is not at their head
            raise Damaged(f"no .npz file of plain arrays: {name!r} is none")
    return arrays
