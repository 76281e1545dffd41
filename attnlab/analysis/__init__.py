"""Looking into trained models: pictures and arrays of attention."""
