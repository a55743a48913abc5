"""Objects that raise or never end give one error message, or their own exception."""

import pytest
from hostile import run


def test_first_calls_of_two_threads():
    """No thread holds the GIL while it waits for another's import of NumPy."""
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


def test_names_that_are_not_text():
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
            "get_indice_pairs: spatial_shape has 1000000000000 elements, expected 2"
        )
        points = Producer(dlpack(memory([0] * 6), [2, 3]))
        many = {range(10**12): "1000000000000", Endless(): "more than 3", Huge(): "more than 3"}
        for size, text in many.items():
            assert refusal(ValueError, turnout.voxelize, points, size, [0, 0, 0, 1, 1, 1]) == (
                f"voxelize: voxel_size has {text} elements, expected 3"
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
            "get_indice_pairs: kernel_size is [65536, 65536, 65536, 65536], expected at most 16777216 "
            "offsets in all"
        )
        """
    )


def test_out_that_cannot_be_sliced():
    """Rejected before anything is written."""
    run(
        """
        points = Producer(dlpack(memory([0.5] * 6), [2, 3]))
        integer = ctypes.c_int32
        kinds = [(ctypes.c_float, 2, 27, [3, 3, 3]), (integer, 0, 9, [3, 3]), (integer, 0, 3, [3])]
        arrays = [(kind * count)(*[77] * count) for kind, _, count, _ in kinds]
        out = tuple(
            Producer(dlpack(ctypes.addressof(array), shape, code=code))
            for array, (_, code, _, shape) in zip(arrays, kinds)
        )
        grid = [1] * 3, [0, 0, 0, 2, 2, 2]
        message = refusal(
            ValueError, turnout.voxelize, points, *grid, max_points=3, max_voxels=3, out=out
        )
        assert message.startswith(
            "voxelize: out has an array of type Producer whose first rows cannot be taken: "
        )
        assert all(value == 77 for array in arrays for value in array)
        """
    )


def test_flag_that_raises():
    """Evaluated before anything is written; its exception is raised."""
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
        message = refusal(
            ZeroDivisionError, turnout.mutual_information_backward, px, py, p, ans_grad,
            overwrite_ans_grad=bool_(), out=(px_grad, py_grad),
        )
        assert message == "neither"
        assert all(value == 77 for value in [*x, *y])
        assert refusal(
            ZeroDivisionError, turnout.indice_pairs_output_shape, [3], subm=bool_()
        ) == "neither"
        """
    )
