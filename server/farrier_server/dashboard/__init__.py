"""The dashboard: pages in the browser that read and act through the REST API alone."""
