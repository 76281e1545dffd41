"""Analysis of trained models: pictures and arrays of attention."""
