# SPDX-License-Identifier: Apache-2.0
"""ONNX Runtime on the CPU: the fused attention operators of its com.microsoft domain, whichever of them
is fastest for the case. Inputs and outputs are bound once, so nothing is copied or allocated in a run."""
import peer

try:
    import numpy
    import onnx
    import onnxruntime
    from onnx import TensorProto, helper
except Exception as error:
    peer.absent("ort", error)

DTYPES = {"f32": (numpy.float32, TensorProto.FLOAT), "f16": (numpy.float16, TensorProto.FLOAT16)}
onnxruntime.set_default_logger_severity(4)  # a refused case is reported by its exception


class Model:
    """A graph of one attention node: collects inputs, then becomes a bound session."""

    def __init__(self, case, operator, **attributes):
        self.case, self.operator, self.attributes = case, operator, attributes
        self.names, self.values = [], {}

    def give(self, name, value):
        """The next input; without a value it is left out."""
        self.names.append(name if value is not None else "")
        if value is not None:
            self.values[name] = value
        return self

    def session(self):
        case = self.case
        kind = DTYPES[case.dtype][1]
        shape = [1, case.tokens, case.heads * case.dim]
        outputs = ["out"]
        if self.operator == "GroupQueryAttention":
            outputs += ["present_key", "present_value"]
        node = helper.make_node(self.operator, self.names, outputs, domain="com.microsoft", **self.attributes)
        inputs = [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape)
            for name, value in self.values.items()
        ]
        results = [helper.make_tensor_value_info(name, kind, shape if name == "out" else None) for name in outputs]
        graph = helper.make_graph([node], "attention", inputs, results)
        domains = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
        model = helper.make_model(graph, opset_imports=domains, ir_version=8)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = peer.threads()
        options.inter_op_num_threads = 1
        return onnxruntime.InferenceSession(model.SerializeToString(), options, ["CPUExecutionProvider"])

    def bound(self):
        """A function that runs the model and returns its output."""
        session, binding = self.session(), None
        binding = session.io_binding()
        for name, value in self.values.items():
            binding.bind_cpu_input(name, value)
        for output in session.get_outputs():
            if output.name == "out":
                array = numpy.zeros(output.shape, DTYPES[self.case.dtype][0])
                value = onnxruntime.OrtValue.ortvalue_from_numpy(array)
                binding.bind_ortvalue_output(output.name, value)
            else:
                binding.bind_output(output.name)

        def run():
            session.run_with_iobinding(binding)
            return value

        return run


def multi_head(case, q, k, v):
    model = Model(case, "MultiHeadAttention", num_heads=case.heads, unidirectional=int(case.causal))
    return model.give("q", q).give("k", k).give("v", v)


def grouped(case, q, k, v):
    """Causal by definition. It keeps a cache of keys, which here is empty before and full after."""
    empty = numpy.zeros((1, case.heads, 0, case.dim), q.dtype)
    model = Model(case, "GroupQueryAttention", num_heads=case.heads, kv_num_heads=case.heads)
    model.give("q", q).give("k", k).give("v", v)
    model.give("past_key", empty).give("past_value", empty)
    model.give("seqlens_k", numpy.array([case.tokens - 1], numpy.int32))
    return model.give("total_sequence_length", numpy.array([case.tokens], numpy.int32))


class Job:
    def __init__(self, case):
        if case.backward:
            raise peer.Refused("forward only")
        if case.dtype not in DTYPES:
            raise peer.Refused("f32 and f16 only")
        self.case = case
        self.result = case.dtype
        flat = (1, case.tokens, case.heads * case.dim)
        q, k, v = (numpy.frombuffer(case.load(name), DTYPES[case.dtype][0]).reshape(flat).copy() for name in "qkv")
        by_head = [numpy.ascontiguousarray(x.reshape(case.tokens, case.heads, -1).swapaxes(0, 1))[None] for x in (k, v)]
        makers = {
            "MultiHeadAttention": lambda: multi_head(case, q, k, v),
            "MultiHeadAttention, k and v by head": lambda: multi_head(case, q, *by_head),
        }
        if case.causal:
            makers["GroupQueryAttention"] = lambda: grouped(case, q, k, v)
        self.detail, self.compute = peer.fastest({name: lazy(maker) for name, maker in makers.items()})
        self.run()

    def run(self):
        self.output = self.compute()

    def rows(self, which, positions):
        return self.output.numpy()[0, positions].tobytes()


def lazy(maker):
    """Builds the session at the first call, so that an operator that refuses the case fails there."""
    made = []

    def run():
        if not made:
            made.append(maker().bound())
        return made[0]()

    return run


peer.serve("ort", onnxruntime.__version__, Job)
