"""Output writers: rows with their answers as JSON, CSV, TSV or Parquet."""
