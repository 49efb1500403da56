"""What is written: rows with their answers as JSON, CSV, TSV or Parquet."""
