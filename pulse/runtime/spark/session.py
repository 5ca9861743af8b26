"""Create the Spark session that Pulse runs in: find Java, let workers import Pulse, set quiet and local defaults."""

from __future__ import annotations

import atexit
import logging
import os
import shutil
import signal
import sys
import tempfile
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path

from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession as SparkSession  # upper layers take the type from here

from pulse.core.errors import JavaNotFoundError
from pulse.runtime.jobs.secrets import looks_secret
from pulse.runtime.spark import packaging as shipping
from pulse.runtime.spark.java import find_java
from pulse.runtime.spark.secret_settings import handed_over, secret_settings

log = logging.getLogger(__name__)

_LOG4J = """\
rootLogger.level = error
rootLogger.appenderRef.stderr.ref = stderr
logger.gateway.name = org.apache.spark.api.python.PythonGatewayServer
logger.gateway.level = error
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n%ex
"""

_STATE_STORE = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


def session(
    master: str | None = None,
    app_name: str = "pulse",
    *,
    warm: bool = False,
    environment: str | os.PathLike[str] | None = None,
    **conf: str | int | bool,
) -> SparkSession:
    """Return the running Spark session, or start one.

    A session that already runs is returned as it is, with those settings of ``conf`` that can change at run time. The workers of
    a cluster receive the package that this process runs.

    Parameters
    ----------
    master : Spark master; default ``PULSE_MASTER``, else that of ``spark-submit``, else all cores of this machine
    app_name : name of the application, default ``"pulse"``
    warm : compile every kernel first, default False
        Workers then load them from the cache instead of compiling each: worth it where many start at once on a cold cache.
    environment : archive written by `pulse ship`, for workers without the package's dependencies; default ``PULSE_ENVIRONMENT``
    **conf : Spark settings, ``session(**{"spark.executor.memory": "4g"})``; they override ours
    """
    if warm:
        warm_kernels()
    if is_running():
        return _reconfigured(SparkSession.builder.getOrCreate(), conf)
    # Raised by every use of Arrow or pandas. The pandas range in setup.cfg is one that our own tests ran with.
    warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas", FutureWarning)
    master = chosen_master(master)
    local = is_local(master)
    java = find_java()
    log.info("Java %d from %s: %s", java.version, java.source, java.home)
    os.environ["JAVA_HOME"] = str(java.home)
    if local:
        os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    else:
        archive = environment or os.environ.get("PULSE_ENVIRONMENT")
        conf = {**(shipping.archive_settings(archive) if archive else {}), **conf}
        _choose_interpreters(str(conf.get("spark.pyspark.python") or ""))
    builder = SparkSession.builder.master(master).appName(app_name)
    hidden = secret_settings(conf)
    for key, value in {**settings(local=local), **conf}.items():
        if key not in hidden:
            builder = builder.config(key, value)
    try:
        with _starting(), handed_over(hidden), nullcontext() if local else shipping.importable():
            started = builder.getOrCreate()
    except PySparkRuntimeError as e:
        if e.getCondition() != "JAVA_GATEWAY_EXITED":
            raise
        raise JavaNotFoundError(
            f"Spark's JVM did not start with Java {java.version} from {java.source} ({java.home}): "
            f"{java.banner}. Its own message is above; `pulse doctor` shows which Java is used and why."
        ) from e
    if not local:
        shipping.ship(started)
    return started


@contextmanager
def _starting() -> Iterator[None]:
    """Defer Ctrl-C until Spark has started: a JVM whose launch is interrupted lives on without anyone to end it."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    seen: list[int] = []

    def note(number: int, _: object) -> None:
        seen.append(number)

    before = signal.signal(signal.SIGINT, note)
    try:
        yield
    finally:
        # Another handler is Spark's own, which ends jobs as well.
        if signal.getsignal(signal.SIGINT) is note:
            signal.signal(signal.SIGINT, before)
    if seen:
        raise KeyboardInterrupt


def hush(spark: SparkSession) -> None:
    """Turn off Spark's log: an interrupted session writes long and useless errors."""
    with suppress(Py4JError):  # it may have been interrupted itself
        spark.sparkContext.setLogLevel("OFF")


def chosen_master(given: str | None = None) -> str:
    """Return the given master, else that of the environment, else that of ``spark-submit``, else this machine."""
    return given or os.environ.get("PULSE_MASTER") or _submitted() or "local[*]"


def _submitted() -> str | None:
    """Return the master of ``spark-submit``, if it runs this process."""
    if "PYSPARK_GATEWAY_PORT" not in os.environ:
        return None
    SparkContext._ensure_initialized()  # connects to the JVM that holds the setting
    return SparkConf().get("spark.master")


def is_local(master: str) -> bool:
    """Return whether a master is this machine alone, where workers see the driver's files."""
    return master.startswith("local")


def _choose_interpreters(workers: str) -> None:
    """Set the workers' Python: as given, else as in the environment, else the path of this one; the driver's is this one.

    PySpark reads both from the environment only; ``spark.pyspark.python`` otherwise only affects ``spark-submit``.
    """
    os.environ["PYSPARK_PYTHON"] = workers or os.environ.get("PYSPARK_PYTHON") or sys.executable
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable


def is_running() -> bool:
    """Return whether Spark was started in this process and still runs."""
    return SparkContext._active_spark_context is not None


def settings(*, local: bool) -> dict[str, str]:
    """Return our defaults, by Spark's names.

    State is kept in RocksDB and encoded as Avro from the first checkpoint on: with the default encoding a
    checkpoint cannot be read after the state's schema has grown. Timestamps are UTC (semantics 1.1).
    """
    scratch = _scratch_folder()
    chosen = {
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.streaming.stateStore.providerClass": _STATE_STORE,
        "spark.sql.streaming.stateStore.encodingFormat": "avro",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={_log_settings(scratch).as_uri()} "
        f'"-Dderby.system.home={scratch / "derby"}"',
    }
    if local:
        chosen |= {
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.ui.enabled": "false",
            "spark.sql.shuffle.partitions": str(os.cpu_count() or 2),
            "spark.sql.warehouse.dir": (scratch / "warehouse").as_uri(),
        }
    return chosen


def warm_kernels() -> None:
    """Compile all kernels into the on-disk cache, which the workers of this machine then load from.

    The workers are forked from a daemon that the JVM starts, never from this process, so they can only share the cache; workers
    on other machines fill their own cache, or are shipped one (`pulse ship`).
    """
    from pulse.kernels._jit import warm

    seconds = warm()
    log.info("%d kernels ready in %.2f s", len(seconds), sum(seconds.values()))


def _reconfigured(spark: SparkSession, conf: dict[str, str | int | bool]) -> SparkSession:
    for key, value in conf.items():
        if spark.conf.isModifiable(key):
            spark.conf.set(key, value)
        else:
            kept = "as it is" if looks_secret(key) else spark.conf.get(key, "unset")
            log.warning("Spark already runs: %s stays %s", key, kept)
    return spark


def _log_settings(folder: Path) -> Path:
    """Configure Spark's logging from its first line on; ``setLogLevel`` would come after the messages of the start."""
    file = folder / "log4j2.properties"
    file.write_text(_LOG4J)
    return file


def _scratch_folder() -> Path:
    """Return a folder for files that Spark would otherwise leave in the working directory; removed when the process ends."""
    folder = tempfile.mkdtemp(prefix="pulse-spark-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)
