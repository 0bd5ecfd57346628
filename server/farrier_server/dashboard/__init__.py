"""The dashboard: pages for the browser that read and change the farm only through the REST API."""
