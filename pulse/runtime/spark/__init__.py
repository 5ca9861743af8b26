"""Start Spark and talk to it: session, Java, packaging, progress, errors."""
