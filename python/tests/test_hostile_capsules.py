"""Arrays that describe their memory wrongly each give one error message."""

import pytest
from hostile import run


def test_strided_capsules_without_numpy():
    """Strided inputs are copied without NumPy, which is imported only for the result."""
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


@pytest.mark.parametrize(
    ("capsule", "message"),
    [
        ("dlpack(ROWS, [2, 2], ndim=-1)", " has -1 dimensions, expected 0 or more"),
        ("dlpack(ROWS, [2, 2], ndim=-(2**31))", " has -2147483648 dimensions, expected 0 or more"),
        ("dlpack(ROWS, None, ndim=2)", " has 2 dimensions and no shape"),
        ("dlpack(ROWS, [1] * 40, ndim=40)", " has 40 dimensions, expected [rows, hidden]"),
        ("dlpack(ROWS, [], ndim=0)", " has 0 dimensions, expected [rows, hidden]"),
        ("dlpack(ROWS, [-2, 2])", ".shape[0] is -2, expected 0 or more"),
        ("dlpack(ROWS, [2, -(2**63)])", ".shape[1] is -9223372036854775808, expected 0 or more"),
        ("dlpack(ROWS, [2**62, 2**62])", " is larger than the address space"),
        ("dlpack(ROWS, [2**61, 1])", " is larger than the address space"),
        ("dlpack(None, [2, 2])", ".data is null, expected memory"),
        ("dlpack(ROWS, [2, 2], strides=[2**62, 1])", ".strides[0] reaches beyond the address space"),
        ("dlpack(ROWS, [2, 2], strides=[-(2**63), 1])", ".strides[0] reaches beyond the address space"),
        ("dlpack(ROWS, [2, 2], device=2)", " is on a device of DLPack type 2, expected CPU memory"),
        ("dlpack(ROWS, [2, 2], device=-5)", " is on a device of DLPack type -5, expected CPU memory"),
        (
            "dlpack(ROWS, [2, 2], lanes=4)",
            " has dtype of DLPack code 2 with 32 bits and 4 lanes, expected float32, float64, float16, "
            "bfloat16, int8, uint8, int16, uint16, int32, uint32, int64, uint64, bool, float8_e4m3fn, "
            "float8_e5m2, float8_e8m0fnu",
        ),
        (
            "_capsule(Managed(), b'used_dltensor')",
            ".__dlpack__() returned something other than a DLPack capsule",
        ),
        ("_capsule(Managed(), None)", ".__dlpack__() returned something other than a DLPack capsule"),
    ],
)
def test_capsules(capsule, message):
    run(
        f"""
        from capsules import _capsule
        assert refusal(ValueError, call, Producer({capsule})) == (
            "moe_re_routing_inverse: permute_tokens" + {message!r}
        )
        """
    )


@pytest.mark.parametrize(
    ("capsule", "message"),
    [
        ("array_struct(ROWS, [2, 2], [8, 4], two=3)", ".__array_struct__ does not follow NumPy's protocol"),
        ("array_struct(ROWS, [2, 2], [8, 4], nd=-1)", ".__array_struct__ does not follow NumPy's protocol"),
        ("array_struct(ROWS, None, [8, 4], nd=2)", ".__array_struct__ does not follow NumPy's protocol"),
        ("array_struct(ROWS, [2, 2], None)", ".__array_struct__ does not follow NumPy's protocol"),
        (
            "array_struct(ROWS, [2, 2], [8, 4], itemsize=-4)",
            ".__array_struct__ does not follow NumPy's protocol",
        ),
        ("dlpack(ROWS, [2, 2])", ".__array_struct__ does not follow NumPy's protocol"),
        ("3", ".__array_struct__ does not follow NumPy's protocol"),
        ("array_struct(ROWS, [1] * 40, [4] * 40)", " has 40 dimensions, expected [rows, hidden]"),
        ("array_struct(ROWS, [2, -2], [8, 4])", ".shape[1] is -2, expected 0 or more"),
        ("array_struct(None, [2, 2], [8, 4])", ".data is null, expected memory"),
        ("array_struct(ROWS, [2**60, 4], [16, 4])", " is larger than the address space"),
        *(
            (
                f"array_struct(ROWS, [2, 2], [2 * {size}, {size}], kind=b'{kind}', itemsize={size})",
                " has dtype unknown, expected float32, float64, float16, bfloat16, int8, uint8, int16, "
                "uint16, int32, uint32, int64, uint64, bool, float8_e4m3fn, float8_e5m2, float8_e8m0fnu",
            )
            for kind, size in (("i", 16), ("u", 3), ("b", 4), ("f", 0), ("c", 8), ("V", 4), ("?", 1))
        ),
    ],
)
def test_array_structs(capsule, message):
    run(
        f"""
        assert refusal(ValueError, call, Imitation({capsule})) == (
            "moe_re_routing_inverse: permute_tokens" + {message!r}
        )
        """
    )


def test_devices_in_every_function():
    """Each array argument on another device is rejected by name. The calls come from the registry."""
    run(
        """
        from turnout import _core

        def producer(array, device=1):
            code = {"f": FLOAT, "i": INT, "u": 1}[array.dtype.kind]
            return Producer(
                dlpack(array.ctypes.data, array.shape, code=code, bits=8 * array.itemsize, device=device)
            )

        def expect_refusals(function, arguments):
            for elsewhere, array in arguments.items():
                if not hasattr(array, "dtype"):
                    continue
                given = {
                    name: producer(value, 2 if name == elsewhere else 1) if hasattr(value, "dtype") else value
                    for name, value in arguments.items()
                }
                message = refusal(ValueError, function, **given)
                assert message == (
                    f"{function.__name__}: {elsewhere} is on a device of DLPack type 2, "
                    "expected CPU memory"
                ), message

        def public(op):
            call = {name: value for name, value in _core.example(op).items() if name != "with_distances"}
            if op == "voxel_query":
                call["ranges"] = tuple(call.pop(f"{axis}_range") for axis in "zyx")
            return call

        operators = [row["op"] for row in _core.schemas() if hasattr(turnout, row["op"])]
        assert len(operators) >= 53
        for op in operators:
            expect_refusals(getattr(turnout, op), public(op))
        expect_refusals(turnout.VoxelIndex, {"coors": _core.example("dynamic_scatter_forward")["coors"]})
        forward = _core.example("moe_dispatch_forward")
        forward["out"] = turnout.moe_dispatch_forward(**forward)
        expect_refusals(turnout.moe_dispatch_forward, forward)
        """
    )
