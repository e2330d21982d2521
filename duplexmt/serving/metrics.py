"""What an operator watches; neither texts nor tokens nor addresses are in it."""

from functools import partial

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.25, 0.5, 1.0, 2.5, 10.0)
STREAMS = (1, 2, 4, 8, 16, 32, 64, 128, 256)


class Metrics:
    """Of one server."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        of = self.registry
        seconds = partial(Histogram, buckets=SECONDS, registry=of)
        self.step = seconds("duplexmt_step_seconds", "One step of the engine")
        self.batch = Histogram("duplexmt_step_events", "Events of one step", buckets=STREAMS, registry=of)
        self.queue = seconds("duplexmt_queue_seconds", "Sentences' wait for a stream")
        self.delay = seconds("duplexmt_delay_seconds", "From text to the frame that reads it")
        self.lag = seconds("duplexmt_loop_lag_seconds", "Lateness of the event loop")
        self.sessions = Gauge("duplexmt_sessions", "Sessions, connected or waited for", registry=of)
        self.streams = Gauge("duplexmt_streams", "Sentences being translated", registry=of)
        self.waiting = Gauge("duplexmt_waiting", "Sentences that wait for a stream", registry=of)
        self.rejected = Counter("duplexmt_rejected_total", "Connections ended by the server", ["reason"], registry=of)
        self.resumed = Counter("duplexmt_resumed_total", "Sessions gone on with", registry=of)
        self.engines = Counter("duplexmt_engines_total", "Engines started", registry=of)

    def text(self) -> bytes:
        """For `/metrics`."""
        return generate_latest(self.registry)
