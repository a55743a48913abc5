"""Objects that lie, raise or never end: one sentence or their own exception, in a process that may crash."""

import os
import subprocess
import sys
import textwrap

import pytest

HERE = os.path.dirname(os.path.abspath(__file__))
START = """
import turnout
from capsules import *

INDEX = Producer(dlpack(memory([0, 1], ctypes.c_int32), [2], code=INT))
ROWS = memory([1, 2, 3, 4])

def call(tokens, index=INDEX, **options):
    return turnout.moe_re_routing_inverse(tokens, index, **options)

def refusal(kind, function, *arguments, **options):
    try:
        function(*arguments, **options)
    except kind as error:
        assert type(error) is kind, error
        return str(error)
    raise AssertionError("was accepted")
"""


def run(program, timeout=60):
    """Runs a program that must end well, with nothing printed."""
    done = subprocess.run(
        [sys.executable, "-c", START + textwrap.dedent(program)],
        capture_output=True,
        text=True,
        timeout=timeout,
        env={**os.environ, "PYTHONPATH": HERE},
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_first_calls_of_two_threads():
    """Neither waits for the other's import of NumPy while it keeps the GIL."""
    run(
        """
        import sys, threading
        barrier = threading.Barrier(4)
        results = []

        def first():
            barrier.wait()
            results.append(call(Producer(dlpack(ROWS, [2, 2]))))

        assert "numpy" not in sys.modules
        threads = [threading.Thread(target=first, daemon=True) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        assert len(results) == 4, "deadlock"
        assert all(result.tolist() == [[1, 2], [3, 4]] for result in results)
        """
    )


def test_strided_capsules_without_numpy():
    """Strides are undone without NumPy, which is imported for the result alone."""
    run(
        """
        import sys
        for out in (Producer(dlpack(memory([0] * 4), [2, 2])), None):
            result = call(Producer(dlpack(ROWS, [2, 2], strides=[1, 2])), out=out)
            assert ("numpy" in sys.modules) == (out is None)
        assert result.tolist() == [[1, 3], [2, 4]]
        last = ROWS + 12
        assert call(Producer(dlpack(last, [2, 2], strides=[-2, -1]))).tolist() == [[4, 3], [2, 1]]
        assert call(Producer(dlpack(ROWS, [2, 2], strides=[0, 0]))).tolist() == [[1, 1], [1, 1]]
        assert call(Producer(dlpack(ROWS, [2, 2], offset=0))).tolist() == [[1, 2], [3, 4]]
        """
    )


def test_attributes_that_raise():
    run(
        """
        class Missing:
            @property
            def __dlpack__(self):
                raise AttributeError("not today")

        class Failing:
            @property
            def __dlpack__(self):
                raise RuntimeError("not at all")

        class Device:
            def __dlpack__(self, **options):
                return dlpack(ROWS, [2, 2])
            def __dlpack_device__(self):
                raise RuntimeError("no device")

        class NoStruct:
            @property
            def __array_struct__(self):
                raise AttributeError("not today")

        assert refusal(ValueError, call, Missing()) == (
            "moe_re_routing_inverse: permute_tokens does not give access to its memory: it has no __dlpack__"
        )
        assert refusal(RuntimeError, call, Failing()) == "not at all"
        assert call(Device()).tolist() == [[1, 2], [3, 4]]
        assert refusal(ValueError, call, NoStruct()) == (
            "moe_re_routing_inverse: permute_tokens.__array_struct__ is not what NumPy's protocol says"
        )
        """
    )


@pytest.mark.parametrize("kind", ["KeyboardInterrupt", "SystemExit", "GeneratorExit"])
def test_interrupts_pass(kind):
    run(
        f"""
        class Stop:
            def __dlpack__(self, **options):
                raise {kind}("stop")
            def __index__(self):
                raise {kind}("stop")
            def __len__(self):
                raise {kind}("stop")
            def __getitem__(self, i):
                raise {kind}("stop")

        class Text(str):
            def __repr__(self):
                raise {kind}("stop")

        tokens = Producer(dlpack(ROWS, [2, 2]))
        points = Producer(dlpack(memory([0] * 6), [2, 3]))
        for function, *arguments in (
            (call, Stop()),
            (call, tokens, Stop()),
            (turnout.voxelize, points, Stop(), [0, 0, 0, 1, 1, 1]),
            (turnout.indice_pairs_output_shape, Stop()),
            (turnout.indice_pairs_output_shape, [4], [Stop()]),
            (turnout.dynamic_scatter_forward, points, INDEX, Text("median")),
        ):
            assert refusal({kind}, function, *arguments) == "stop"
        assert refusal({kind}, call, tokens, idx_type=Stop()) == "stop"
        """
    )


def test_names_that_are_no_text():
    run(
        """
        def named(get_name):
            return type("Meta", (type,), {"__name__": property(get_name)})("Named", (), {})

        Strange = named(lambda self: "Strange\\ud800")
        assert refusal(TypeError, call, Strange()).startswith(
            "moe_re_routing_inverse: permute_tokens is of type Strange\\\\ud800, expected an array"
        )
        assert refusal(TypeError, call, named(lambda self: 1 / 0)()).startswith(
            "moe_re_routing_inverse: permute_tokens is of type ?, expected an array"
        )

        class Text(str):
            def __repr__(self):
                return "\\ud800"

        points = Producer(dlpack(memory([0] * 6), [2, 3]))
        assert refusal(ValueError, turnout.dynamic_scatter_forward, points, INDEX, Text("median")) == (
            "dynamic_scatter_forward: reduce_type is \\\\ud800, expected one of 'sum', 'mean', 'max'"
        )
        long = refusal(ValueError, turnout.dynamic_scatter_forward, points, INDEX, "\\u20ac" * 10**6)
        assert len(long) < 400 and long.endswith("..., expected one of 'sum', 'mean', 'max'")

        class Failing:
            def __dlpack__(self, **options):
                raise ValueError("\\ud800\\nsecond line")

        assert refusal(ValueError, call, Failing()) == (
            "moe_re_routing_inverse: permute_tokens does not give access to its memory: \\\\ud800"
        )
        """
    )


@pytest.mark.parametrize(
    ("capsule", "sentence"),
    [
        ("dlpack(ROWS, [2, 2], ndim=-1)", " comes with -1 dimensions, expected 0 or more"),
        ("dlpack(ROWS, [2, 2], ndim=-(2**31))", " comes with -2147483648 dimensions, expected 0 or more"),
        ("dlpack(ROWS, None, ndim=2)", " comes with 2 dimensions and without a shape"),
        ("dlpack(ROWS, [1] * 40, ndim=40)", " has 40 dimensions, expected [rows, hidden]"),
        ("dlpack(ROWS, [], ndim=0)", " has 0 dimensions, expected [rows, hidden]"),
        ("dlpack(ROWS, [-2, 2])", ".shape[0] is -2, expected 0 or more"),
        ("dlpack(ROWS, [2, -(2**63)])", ".shape[1] is -9223372036854775808, expected 0 or more"),
        ("dlpack(ROWS, [2**62, 2**62])", " is larger than the address space"),
        ("dlpack(ROWS, [2**61, 1])", " is larger than the address space"),
        ("dlpack(None, [2, 2])", ".data is null, expected memory"),
        ("dlpack(ROWS, [2, 2], strides=[2**62, 1])", ".strides[0] reaches beyond the address space"),
        ("dlpack(ROWS, [2, 2], strides=[-(2**63), 1])", ".strides[0] reaches beyond the address space"),
        ("dlpack(ROWS, [2, 2], device=2)", " is on a device of DLPack type 2, expected memory of the CPU"),
        ("dlpack(ROWS, [2, 2], device=-5)", " is on a device of DLPack type -5, expected memory of the CPU"),
        (
            "dlpack(ROWS, [2, 2], lanes=4)",
            " has dtype of DLPack code 2 with 32 bits and 4 lanes, expected f32, f64, f16, bf16, i8, u8, "
            "i16, u16, i32, u32, i64, u64, bool, f8_e4m3fn, f8_e5m2, f8_e8m0",
        ),
        (
            "_capsule(Managed(), b'used_dltensor')",
            ".__dlpack__() returned something else than a DLPack capsule",
        ),
        ("_capsule(Managed(), None)", ".__dlpack__() returned something else than a DLPack capsule"),
    ],
)
def test_capsules(capsule, sentence):
    run(
        f"""
        from capsules import _capsule
        assert refusal(ValueError, call, Producer({capsule})) == (
            "moe_re_routing_inverse: permute_tokens" + {sentence!r}
        )
        """
    )


@pytest.mark.parametrize(
    ("capsule", "sentence"),
    [
        ("array_struct(ROWS, [2, 2], [8, 4], two=3)", ".__array_struct__ is not what NumPy's protocol says"),
        ("array_struct(ROWS, [2, 2], [8, 4], nd=-1)", ".__array_struct__ is not what NumPy's protocol says"),
        ("array_struct(ROWS, None, [8, 4], nd=2)", ".__array_struct__ is not what NumPy's protocol says"),
        ("array_struct(ROWS, [2, 2], None)", ".__array_struct__ is not what NumPy's protocol says"),
        (
            "array_struct(ROWS, [2, 2], [8, 4], itemsize=-4)",
            ".__array_struct__ is not what NumPy's protocol says",
        ),
        ("dlpack(ROWS, [2, 2])", ".__array_struct__ is not what NumPy's protocol says"),
        ("3", ".__array_struct__ is not what NumPy's protocol says"),
        ("array_struct(ROWS, [1] * 40, [4] * 40)", " has 40 dimensions, expected [rows, hidden]"),
        ("array_struct(ROWS, [2, -2], [8, 4])", ".shape[1] is -2, expected 0 or more"),
        ("array_struct(None, [2, 2], [8, 4])", ".data is null, expected memory"),
        ("array_struct(ROWS, [2**60, 4], [16, 4])", " is larger than the address space"),
        *(
            (
                f"array_struct(ROWS, [2, 2], [2 * {size}, {size}], kind=b'{kind}', itemsize={size})",
                " has dtype unknown, expected f32, f64, f16, bf16, i8, u8, i16, u16, i32, u32, i64, u64, bool, "
                "f8_e4m3fn, f8_e5m2, f8_e8m0",
            )
            for kind, size in (("i", 16), ("u", 3), ("b", 4), ("f", 0), ("c", 8), ("V", 4), ("?", 1))
        ),
    ],
)
def test_array_structs(capsule, sentence):
    run(
        f"""
        assert refusal(ValueError, call, Imitation({capsule})) == (
            "moe_re_routing_inverse: permute_tokens" + {sentence!r}
        )
        """
    )


def test_devices_in_every_function():
    """Each array argument is refused by name when it is elsewhere."""
    run(
        """
        def f(*shape, device=1):
            return Producer(dlpack(memory([0] * 64), shape, device=device))
        def i(*shape, bits=32, device=1):
            kind = ctypes.c_int32 if bits == 32 else ctypes.c_int64
            return Producer(dlpack(memory([0] * 64, kind), shape, code=INT, bits=bits, device=device))
        def wide(*shape, device=1):
            return i(*shape, bits=64, device=device)

        grid = {"voxel_size": [1] * 3, "point_cloud_range": [0, 0, 0, 1, 1, 1]}
        calls = [
            (turnout.moe_dispatch_forward, {"capacity": 2, "num_experts": 1},
             {"gates": (f, 2), "indices": (i, 2), "locations": (i, 2), "input": (f, 2, 3), "out": (f, 2, 3)}),
            (turnout.moe_re_routing, {},
             {"tokens": (f, 2, 3), "expert_token_num_per_rank": (i, 1, 2), "per_token_scales": (f, 2)}),
            (turnout.moe_re_routing_inverse, {},
             {"permute_tokens": (f, 2, 3), "permute_token_idx": (i, 2), "out": (f, 2, 3)}),
            (turnout.mutual_information_forward, {},
             {"px": (f, 1, 2, 4), "py": (f, 1, 3, 3), "boundary": (wide, 1, 4)}),
            (turnout.mutual_information_backward, {},
             {"px": (f, 1, 2, 4), "py": (f, 1, 3, 3), "p": (f, 1, 3, 4), "ans_grad": (f, 1),
              "boundary": (wide, 1, 4)}),
            (turnout.mutual_information_forward_backward, {},
             {"px": (f, 1, 2, 4), "py": (f, 1, 3, 3), "boundary": (wide, 1, 4)}),
            (turnout.get_indice_pairs, {"batch_size": 1, "spatial_shape": [2, 2]}, {"indices": (i, 2, 3)}),
            (turnout.voxelize, grid, {"points": (f, 2, 3), "out": (i, 2, 3)}),
            (turnout.dynamic_scatter_forward, {}, {"feats": (f, 2, 3), "coors": (i, 2, 3)}),
            (turnout.dynamic_scatter_backward, {},
             {"grad_voxel_feats": (f, 1, 3), "feats": (f, 2, 3), "voxel_feats": (f, 1, 3),
              "point2voxel_map": (i, 2), "voxel_points_count": (i, 1), "out": (f, 2, 3)}),
            (turnout.VoxelIndex, {}, {"coors": (i, 2, 3)}),
        ]
        for function, options, arrays in calls:
            for elsewhere in arrays:
                given = {
                    name: make(*shape, device=2 if name == elsewhere else 1)
                    for name, (make, *shape) in arrays.items()
                }
                sentence = refusal(ValueError, function, **options, **given)
                assert sentence == (
                    f"{function.__name__}: {elsewhere} is on a device of DLPack type 2, "
                    "expected memory of the CPU"
                ), sentence
        """
    )


def test_sequences_without_end():
    run(
        """
        class Endless:
            def __getitem__(self, i):
                return 1

        class Huge(Endless):
            def __len__(self):
                return 10**30

        shape = turnout.indice_pairs_output_shape
        assert refusal(ValueError, shape, range(10**12)) == (
            "indice_pairs_output_shape: spatial_shape has 1000000000000 elements, expected 1 .. 4"
        )
        assert refusal(ValueError, shape, Huge()) == (
            "indice_pairs_output_shape: spatial_shape has too many elements, expected 1 .. 4"
        )
        assert refusal(TypeError, shape, Endless()) == (
            "indice_pairs_output_shape: spatial_shape is of type Endless, expected a sequence of integers"
        )
        sites = Producer(dlpack(memory([0] * 6, ctypes.c_int32), [2, 3], code=INT))
        assert refusal(ValueError, turnout.get_indice_pairs, sites, 1, range(10**12)) == (
            "get_indice_pairs: spatial_shape has 1000000000000 elements, expected dims = 2"
        )
        points = Producer(dlpack(memory([0] * 6), [2, 3]))
        for size, many in ((range(10**12), "1000000000000"), (Endless(), "more than 3"), (Huge(), "more than 3")):
            assert refusal(ValueError, turnout.voxelize, points, size, [0, 0, 0, 1, 1, 1]) == (
                f"voxelize: voxel_size has {many} elements, expected 3"
            )
        """,
        timeout=30,
    )


def test_large_numbers():
    run(
        """
        one = Producer(dlpack(memory([0]), [1]))
        index = Producer(dlpack(memory([0], ctypes.c_int32), [1], code=INT))
        row = Producer(dlpack(memory([0]), [1, 1]))
        for capacity in (10**5000, -(10**5000)):
            assert refusal(
                ValueError, turnout.moe_dispatch_forward, one, index, index, row, capacity, 1
            ) == (
                "moe_dispatch_forward: capacity is an integer of 16610 bits, expected an integer of 64 bits"
            )
        points = Producer(dlpack(memory([0] * 6), [2, 3]))
        assert refusal(ValueError, turnout.voxelize, points, [1, 10**400, 1], [0, 0, 0, 1, 1, 1]) == (
            "voxelize: voxel_size[1] is not to be had as a number: int too large to convert to float"
        )
        sites = Producer(dlpack(memory([0] * 10, ctypes.c_int32), [2, 5], code=INT))
        assert refusal(ValueError, turnout.get_indice_pairs, sites, 1, [9] * 4, [65536] * 4) == (
            "get_indice_pairs: kernel_size is [65536, 65536, 65536, 65536], expected at most 16777216 offsets "
            "in all"
        )
        """
    )


def test_out_that_cannot_be_sliced():
    """Refused before anything is written."""
    run(
        """
        points = Producer(dlpack(memory([0.5] * 6), [2, 3]))
        kinds = [(ctypes.c_float, 2, 3 * 3 * 3, [3, 3, 3]), (ctypes.c_int32, 0, 9, [3, 3]), (ctypes.c_int32, 0, 3, [3])]
        arrays = [(kind * count)(*[77] * count) for kind, _, count, _ in kinds]
        out = tuple(
            Producer(dlpack(ctypes.addressof(array), shape, code=code))
            for array, (_, code, _, shape) in zip(arrays, kinds)
        )
        sentence = refusal(
            ValueError, turnout.voxelize, points, [1] * 3, [0, 0, 0, 2, 2, 2], max_points=3, max_voxels=3, out=out
        )
        assert sentence.startswith("voxelize: out has an array of type Producer whose first rows cannot be taken: ")
        assert all(value == 77 for array in arrays for value in array)
        """
    )


def test_flag_that_raises():
    """Asked before anything is written, and heard."""
    run(
        """
        class bool_:
            def __bool__(self):
                raise ZeroDivisionError("neither")

        def f(*shape):
            count = 1
            for extent in shape:
                count *= extent
            array = (ctypes.c_float * count)(*[77] * count)
            return array, Producer(dlpack(ctypes.addressof(array), shape))

        (_, px), (_, py), (_, p), (_, ans_grad) = f(1, 2, 4), f(1, 3, 3), f(1, 3, 4), f(1)
        (x, px_grad), (y, py_grad) = f(1, 2, 4), f(1, 3, 3)
        sentence = refusal(
            ZeroDivisionError, turnout.mutual_information_backward, px, py, p, ans_grad,
            overwrite_ans_grad=bool_(), out=(px_grad, py_grad),
        )
        assert sentence == "neither"
        assert all(value == 77 for value in [*x, *y])
        assert refusal(
            ZeroDivisionError, turnout.indice_pairs_output_shape, [3], subm=bool_()
        ) == "neither"
        """
    )
