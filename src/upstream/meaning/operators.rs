//! The operators of ONNX that sentence encoders consist of. Those of pictures, sound and text generation are left out: each
//! makes the program larger.

use rten::{OpRegistry, op_registry};

/// Returns the operators that a model may use.
pub(super) fn operators() -> OpRegistry {
    op_registry!(
        Abs, Add, And, Cast, CastLike, Ceil, Clip, Concat, ConstantOfShape, Cos, CumSum, DequantizeLinear,
        Div, DynamicQuantizeLinear, Einsum, Equal, Erf, Exp, Expand, Flatten, Floor, Gather, GatherElements,
        GatherND, Gelu, Gemm, Greater, GreaterOrEqual, Identity, IsNaN, LayerNormalization, Less,
        LessOrEqual, Log, MatMul, MatMulInteger, Max, Min, Mod, Mul, Neg, Not, Or, Pow, QuantizeLinear,
        Range, Reciprocal, ReduceL2, ReduceMax, ReduceMean, ReduceMin, ReduceProd, ReduceSum,
        ReduceSumSquare, Relu, Reshape, Round, ScatterElements, ScatterND, Shape, Sigmoid, Sign, Sin, Size,
        Slice, Softmax, Split, Sqrt, Squeeze, Sub, Sum, Tanh, Tile, Transpose, Trilu, Unsqueeze, Where
    )
}
