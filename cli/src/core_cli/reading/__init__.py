"""Input readers: text, JSON lines, JSON arrays, CSV, TSV and Parquet become rows, one by one."""
