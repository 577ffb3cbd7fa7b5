"""Sinks that Spark writes to."""

from types import SimpleNamespace

from py4j.protocol import Py4JJavaError

from penstock.model import Sink
from penstock.results.delivery import Delivery, SinkQuery, group_sinks
from penstock.spark.sink import WriterSink, cause
from penstock.state.manifest import Manifest
from penstock.state.result_files import ResultFile, ResultFiles


def test_a_sink_of_spark_says_what_went_wrong_in_java():
    java = SimpleNamespace(_target_id="o401", _gateway_client=None, getMessage=lambda: "No suitable driver\n at x")

    def fail(_queries, _part):
        raise Py4JJavaError("An error occurred while calling o401.save.", java)

    sinks = group_sinks([SinkQuery(1, "q", Sink("jdbc"), ("a",))], {}, -1, lambda into: WriterSink(into, fail))
    files = ResultFiles([ResultFile("f", "j", 3, 1, 1, 1, 0, 0, ((1, 1),))])
    Delivery(lambda *_: 0, sinks, cause).deliver(Manifest(step=3, results=files))
    assert sinks[0].error == "No suitable driver"
