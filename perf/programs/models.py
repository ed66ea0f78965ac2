"""Training steps as programs of AxCCL (docs/program-format.md), split over ranks by data, by tensors, or both.

A step is forward, backward and the update of all weights. With `data` x `tensor` ranks, rank r has part r // tensor of the batch
and part r % tensor of every layer: columns of its first matrix and rows of its second, or heads of attention.
"""

import math


class Text:
    """Writes a program of one part. A value is (id, dims)."""

    def __init__(self, data, tensor):
        self.ranks = data * tensor
        self.data, self.tensor = data, tensor
        self.over_tensor = [[d * tensor + t for t in range(tensor)] for d in range(data)]
        self.over_data = [[d * tensor + t for d in range(data)] for t in range(tensor)]
        self.arguments, self.lines, self.scales = [], [], []
        self.next = 0

    def new(self):
        self.next += 1
        return self.next - 1

    def argument(self, dims, scale):
        value = (self.new(), dims)
        self.arguments.append(value)
        self.scales.append(scale)
        return value

    def op(self, name, operands, dims, attributes="", dtype="f32"):
        value = (self.new(), list(dims))
        ids = "".join(f" %{operand[0]}" for operand in operands)
        self.lines.append(f"%{value[0]} {dtype}{ints(dims)} = {name}{ids}{' ' + attributes if attributes else ''}")
        return value

    def like(self, name, *operands):
        return self.op(name, operands, operands[0][1])

    def constant(self, number):
        return self.op("constant", [], [], f"value={number}")

    def spread(self, value, dims, onto):
        return self.op("broadcast_in_dim", [value], dims, f"dims={ints(onto)}")

    def dot(self, left, right, contract, batch=((), ())):
        """`contract`: a dimension of each."""
        others = [d for i, d in enumerate(left[1]) if i != contract[0] and i not in batch[0]]
        others += [d for i, d in enumerate(right[1]) if i != contract[1] and i not in batch[1]]
        return self.op("dot_general", [left, right], [left[1][i] for i in batch[0]] + others,
                       f"lhs_batching_dims={ints(batch[0])} rhs_batching_dims={ints(batch[1])} "
                       f"lhs_contracting_dims=[{contract[0]}] rhs_contracting_dims=[{contract[1]}]")

    def all_reduce(self, value, groups, channel):
        if len(groups[0]) == 1:
            return value
        text = "[" + ",".join(ints(group) for group in groups) + "]"
        return self.op("all_reduce", [value], value[1], f"fold=add groups={text} channel={channel}")

    def update(self, weight, gradient):
        gradient = self.all_reduce(gradient, self.over_data, 2)
        rate = self.spread(self.constant("0.001"), weight[1], [])
        return self.like("subtract", weight, self.like("multiply", rate, gradient))

    def end(self, results):
        text = f"axccl-program 1\nranks {self.ranks}\npart main on {ints(range(self.ranks))}\n"
        for value in self.arguments:
            text += f"  argument %{value[0]} f32{ints(value[1])}\n"
        return text + "".join(f"  {line}\n" for line in self.lines) + "  return" + "".join(
            f" %{value[0]}" for value in results) + "\n"


def ints(numbers):
    return "[" + ",".join(str(n) for n in numbers) + "]"


class Mlp:
    """x + relu(x up) down"""

    def __init__(self, text, rows, dim, hidden):
        self.t = text
        self.up = text.argument([dim, hidden // text.tensor], 1 / math.sqrt(dim))
        self.down = text.argument([hidden // text.tensor, dim], 1 / math.sqrt(hidden))

    def forward(self, x):
        t = self.t
        self.x, self.h = x, t.dot(x, self.up, (1, 0))
        self.zero = t.spread(t.constant("0"), self.h[1], [])
        self.a = t.like("maximum", self.h, self.zero)
        return t.like("add", x, t.all_reduce(t.dot(self.a, self.down, (1, 0)), t.over_tensor, 1))

    def backward(self, g):
        t = self.t
        down = t.update(self.down, t.dot(self.a, g, (0, 0)))
        positive = t.op("compare", [self.h, self.zero], self.h[1], "direction=GT", "i1")
        gh = t.op("select", [positive, t.dot(g, self.down, (1, 1)), self.zero], self.h[1])
        gx = t.all_reduce(t.dot(gh, self.up, (1, 1)), t.over_tensor, 1)
        return t.like("add", g, gx), [t.update(self.up, t.dot(self.x, gh, (0, 0))), down]


class Attention:
    """x + softmax(q k / sqrt(size)) v out, of `heads` heads and sequences of `length`."""

    def __init__(self, text, rows, dim, heads, length):
        self.t = text
        self.heads, self.size, self.length = heads // text.tensor, dim // heads, length
        self.sequences = rows // length
        self.wide = [self.sequences, length, self.heads, self.size]
        columns = dim // text.tensor
        self.weights = [text.argument([dim, columns], 1 / math.sqrt(dim)) for _ in range(3)]
        self.out = text.argument([columns, dim], 1 / math.sqrt(dim))

    def forward(self, x):
        t = self.t
        self.x = x
        self.q, self.k, self.v = [t.op("reshape", [t.dot(x, w, (1, 0))], self.wide) for w in self.weights]
        scores = t.dot(self.q, self.k, (3, 3), ((0, 2), (0, 2)))
        dims = scores[1]
        scores = t.like("multiply", scores, t.spread(t.constant(repr(self.size ** -0.5)), dims, []))
        most = t.op("reduce", [scores, t.constant("0xff800000")], dims[:3], "fold=max dims=[3]")
        e = t.like("exponential", t.like("subtract", scores, t.spread(most, dims, [0, 1, 2])))
        total = t.op("reduce", [e, t.constant("0")], dims[:3], "fold=add dims=[3]")
        self.p = t.like("divide", e, t.spread(total, dims, [0, 1, 2]))
        self.o = self.joined(t.dot(self.p, self.v, (3, 1), ((0, 1), (0, 2))))
        return t.like("add", x, t.all_reduce(t.dot(self.o, self.out, (1, 0)), t.over_tensor, 1))

    def joined(self, value):
        """[sequence, head, position, size] as rows"""
        value = self.t.op("transpose", [value], self.wide, "dims=[0,2,1,3]")
        return self.t.op("reshape", [value], [self.sequences * self.length, self.heads * self.size])

    def backward(self, g):
        t = self.t
        out = t.update(self.out, t.dot(self.o, g, (0, 0)))
        go = t.op("reshape", [t.dot(g, self.out, (1, 1))], self.wide)
        gv = t.dot(self.p, go, (2, 1), ((0, 1), (0, 2)))
        gp = t.dot(go, self.v, (3, 3), ((0, 2), (0, 2)))
        inner = t.op("reduce", [t.like("multiply", gp, self.p), t.constant("0")], gp[1][:3], "fold=add dims=[3]")
        gs = t.like("multiply", self.p, t.like("subtract", gp, t.spread(inner, gp[1], [0, 1, 2])))
        gs = t.like("multiply", gs, t.spread(t.constant(repr(self.size ** -0.5)), gs[1], []))
        gq = t.dot(gs, self.k, (3, 1), ((0, 1), (0, 2)))
        gk = t.dot(gs, self.q, (2, 1), ((0, 1), (0, 2)))
        gx, weights = None, []
        for weight, gradient in zip(self.weights, map(self.joined, (gq, gk, gv))):
            weights.append(t.update(weight, t.dot(self.x, gradient, (0, 0))))
            part = t.dot(gradient, weight, (1, 1))
            gx = part if gx is None else t.like("add", gx, part)
        return t.like("add", g, t.all_reduce(gx, t.over_tensor, 1)), weights + [out]


def step(layers, rows, dim, data, tensor):
    """The program's text, and of each argument the dimensions and the size of its elements. `layers`: functions of a Text and the
    rows of a rank that make a layer."""
    t = Text(data, tensor)
    rows //= data
    x, target = t.argument([rows, dim], 1), t.argument([rows, dim], 1)
    made = [layer(t, rows) for layer in layers]
    for layer in made:
        x = layer.forward(x)
    g, weights = t.like("subtract", x, target), []
    for layer in reversed(made):
        g, updated = layer.backward(g)
        weights += updated
    return t.end(weights), [(value[1], scale) for value, scale in zip(t.arguments, t.scales)]


# Rows, width, and what makes each layer. Products dominate one, weights the other.
MODELS = {
    "mlp, 512 rows": (512, 512, [lambda t, rows: Mlp(t, rows, 512, 1024)] * 2),
    "mlp, 32 rows": (32, 512, [lambda t, rows: Mlp(t, rows, 512, 2048)] * 2),
    "transformer": (512, 256, [lambda t, rows: Attention(t, rows, 256, 4, 64), lambda t, rows: Mlp(t, rows, 256, 1024)] * 2),
}


def variants(ranks):
    """Name, data, tensor."""
    two = [("data", ranks, 1), ("tensor", 1, ranks)]
    return two + ([("both", ranks // 2, 2)] if ranks > 2 else [])
