"""What a run writes down, and under which names: files of JSON lines that a kill cannot spoil."""

from rlagents.metrics.lines import JsonLines, files_of, read_lines
from rlagents.metrics.writer import MetricsWriter, each_metrics, read_metrics

__all__ = ["JsonLines", "MetricsWriter", "each_metrics", "files_of", "read_lines", "read_metrics"]
