#include "tests/program/stablehlo_cases.h"

namespace axccl::program {
namespace {

// The generic forms are as jaxlib prints them, except what it does not have: a root that a value gives, several
// operands of collective_broadcast, collective_reduce.
constexpr StablehloCase kCases[] = {
    {R"(%0 = stablehlo.abs %x : tensor<4x8xf32>)", R"(%0 = "stablehlo.abs"(%x) : (tensor<4x8xf32>) -> tensor<4x8xf32>)",
     R"(  %6 f32[4,8] = abs %0
)"},
    {R"(%0 = stablehlo.cosine %x : tensor<4x8xf32>)",
     R"(%0 = "stablehlo.cosine"(%x) : (tensor<4x8xf32>) -> tensor<4x8xf32>)",
     R"(  %6 f32[4,8] = cosine %0
)"},
    {R"(%0 = stablehlo.exponential %x : tensor<4x8xf32>)",
     R"(%0 = "stablehlo.exponential"(%x) : (tensor<4x8xf32>) -> tensor<4x8xf32>)",
     R"(  %6 f32[4,8] = exponential %0
)"},
    {R"(%0 = stablehlo.floor %x : tensor<4x8xf32>)",
     R"(%0 = "stablehlo.floor"(%x) : (tensor<4x8xf32>) -> tensor<4x8xf32>)",
     R"(  %6 f32[4,8] = floor %0
)"},
    {R"(%0 = stablehlo.is_finite %x : (tensor<4x8xf32>) -> tensor<4x8xi1>)",
     R"(%0 = "stablehlo.is_finite"(%x) : (tensor<4x8xf32>) -> tensor<4x8xi1>)",
     R"(  %6 i1[4,8] = is_finite %0
)"},
    {R"(%0 = stablehlo.log %x : tensor<4x8xf32>)", R"(%0 = "stablehlo.log"(%x) : (tensor<4x8xf32>) -> tensor<4x8xf32>)",
     R"(  %6 f32[4,8] = log %0
)"},
    {R"(%0 = stablehlo.negate %x : tensor<4x8xf32>)",
     R"(%0 = "stablehlo.negate"(%x) : (tensor<4x8xf32>) -> tensor<4x8xf32>)",
     R"(  %6 f32[4,8] = negate %0
)"},
    {R"(%0 = stablehlo.rsqrt %x : tensor<4x8xf32>)",
     R"(%0 = "stablehlo.rsqrt"(%x) : (tensor<4x8xf32>) -> tensor<4x8xf32>)",
     R"(  %6 f32[4,8] = rsqrt %0
)"},
    {R"(%0 = stablehlo.sign %x : tensor<4x8xf32>)",
     R"(%0 = "stablehlo.sign"(%x) : (tensor<4x8xf32>) -> tensor<4x8xf32>)",
     R"(  %6 f32[4,8] = sign %0
)"},
    {R"(%0 = stablehlo.sine %x : tensor<4x8xf32>)",
     R"(%0 = "stablehlo.sine"(%x) : (tensor<4x8xf32>) -> tensor<4x8xf32>)",
     R"(  %6 f32[4,8] = sine %0
)"},
    {R"(%0 = stablehlo.sqrt %x : tensor<4x8xf32>)",
     R"(%0 = "stablehlo.sqrt"(%x) : (tensor<4x8xf32>) -> tensor<4x8xf32>)",
     R"(  %6 f32[4,8] = sqrt %0
)"},
    {R"(%0 = stablehlo.tanh %x : tensor<4x8xf32>)",
     R"(%0 = "stablehlo.tanh"(%x) : (tensor<4x8xf32>) -> tensor<4x8xf32>)",
     R"(  %6 f32[4,8] = tanh %0
)"},
    {R"(%0 = stablehlo.not %p : tensor<i1>)", R"(%0 = "stablehlo.not"(%p) : (tensor<i1>) -> tensor<i1>)",
     R"(  %6 i1[] = not %4
)"},
    {R"(%0 = stablehlo.add %x, %y : tensor<4x8xf32>)",
     R"(%0 = "stablehlo.add"(%x, %y) : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>)",
     R"(  %6 f32[4,8] = add %0 %1
)"},
    {R"(%0 = stablehlo.divide %x, %y : tensor<4x8xf32>)",
     R"(%0 = "stablehlo.divide"(%x, %y) : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>)",
     R"(  %6 f32[4,8] = divide %0 %1
)"},
    {R"(%0 = stablehlo.maximum %x, %y : tensor<4x8xf32>)",
     R"(%0 = "stablehlo.maximum"(%x, %y) : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>)",
     R"(  %6 f32[4,8] = maximum %0 %1
)"},
    {R"(%0 = stablehlo.minimum %x, %y : tensor<4x8xf32>)",
     R"(%0 = "stablehlo.minimum"(%x, %y) : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>)",
     R"(  %6 f32[4,8] = minimum %0 %1
)"},
    {R"(%0 = stablehlo.multiply %x, %y : tensor<4x8xf32>)",
     R"(%0 = "stablehlo.multiply"(%x, %y) : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>)",
     R"(  %6 f32[4,8] = multiply %0 %1
)"},
    {R"(%0 = stablehlo.power %x, %y : tensor<4x8xf32>)",
     R"(%0 = "stablehlo.power"(%x, %y) : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>)",
     R"(  %6 f32[4,8] = power %0 %1
)"},
    {R"(%0 = stablehlo.remainder %x, %y : tensor<4x8xf32>)",
     R"(%0 = "stablehlo.remainder"(%x, %y) : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>)",
     R"(  %6 f32[4,8] = remainder %0 %1
)"},
    {R"(%0 = stablehlo.subtract %x, %y : tensor<4x8xf32>)",
     R"(%0 = "stablehlo.subtract"(%x, %y) : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>)",
     R"(  %6 f32[4,8] = subtract %0 %1
)"},
    {R"(%0 = stablehlo.and %p, %p : tensor<i1>)",
     R"(%0 = "stablehlo.and"(%p, %p) : (tensor<i1>, tensor<i1>) -> tensor<i1>)",
     R"(  %6 i1[] = and %4 %4
)"},
    {R"(%0 = stablehlo.or %p, %p : tensor<i1>)",
     R"(%0 = "stablehlo.or"(%p, %p) : (tensor<i1>, tensor<i1>) -> tensor<i1>)",
     R"(  %6 i1[] = or %4 %4
)"},
    {R"(%0 = stablehlo.xor %p, %p : tensor<i1>)",
     R"(%0 = "stablehlo.xor"(%p, %p) : (tensor<i1>, tensor<i1>) -> tensor<i1>)",
     R"(  %6 i1[] = xor %4 %4
)"},
    {R"(%0 = mhlo.copy %x : tensor<4x8xf32>)", R"(%0 = "mhlo.copy"(%x) : (tensor<4x8xf32>) -> tensor<4x8xf32>)",
     R"(  %6 f32[4,8] = copy %0
)"},
    {R"(%0 = stablehlo.convert %x : (tensor<4x8xf32>) -> tensor<4x8xf64>)",
     R"(%0 = "stablehlo.convert"(%x) : (tensor<4x8xf32>) -> tensor<4x8xf64>)",
     R"(  %6 f64[4,8] = convert %0
)"},
    {R"(%0 = stablehlo.clamp %s, %x, %s : (tensor<f32>, tensor<4x8xf32>, tensor<f32>) -> tensor<4x8xf32>)",
     R"(%0 = "stablehlo.clamp"(%s, %x, %s) : (tensor<f32>, tensor<4x8xf32>, tensor<f32>) -> tensor<4x8xf32>)",
     R"(  %6 f32[4,8] = clamp %2 %0 %2
)"},
    {R"(%0 = stablehlo.select %p, %x, %y : tensor<i1>, tensor<4x8xf32>)",
     R"(%0 = "stablehlo.select"(%p, %x, %y) : (tensor<i1>, tensor<4x8xf32>, tensor<4x8xf32>) ->
    tensor<4x8xf32>)",
     R"(  %6 f32[4,8] = select %4 %0 %1
)"},
    {R"(%0 = stablehlo.compare GE, %x, %y, FLOAT : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xi1>)",
     R"(%0 = "stablehlo.compare"(%x, %y) <{compare_type = #stablehlo<comparison_type FLOAT>,
    comparison_direction = #stablehlo<comparison_direction GE>}> : (tensor<4x8xf32>,
    tensor<4x8xf32>) -> tensor<4x8xi1>)",
     R"(  %6 i1[4,8] = compare %0 %1 direction=GE
)"},
    {R"(%0 = stablehlo.broadcast_in_dim %n, dims = [1, 2] : (tensor<4x1xi32>) -> tensor<2x4x3xi32>)",
     R"(%0 = "stablehlo.broadcast_in_dim"(%n) <{broadcast_dimensions = array<i64: 1, 2>}> :
    (tensor<4x1xi32>) -> tensor<2x4x3xi32>)",
     R"(  %6 i32[2,4,3] = broadcast_in_dim %5 dims=[1,2]
)"},
    {R"(%0 = stablehlo.concatenate %x, %y, dim = 1 : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x16xf32>)",
     R"(%0 = "stablehlo.concatenate"(%x, %y) <{dimension = 1 : i64}> : (tensor<4x8xf32>, tensor<4x8xf32>)
    -> tensor<4x16xf32>)",
     R"(  %6 f32[4,16] = concatenate %0 %1 dim=1
)"},
    {R"(%0 = stablehlo.constant dense<[1, -2]> : tensor<2xi32>)",
     R"(%0 = "stablehlo.constant"() <{value = dense<[1, -2]> : tensor<2xi32>}> : () -> tensor<2xi32>)",
     R"(  %6 i32[2] = constant value=[1,-2]
)"},
    {R"(%0 = stablehlo.transpose %x, dims = [1, 0] {result_layout = dense<[0, 1]> : tensor<2xindex>,
    xla_shape = "f32[8,4]{0,1}"} : (tensor<4x8xf32>) -> tensor<8x4xf32>
%1 = stablehlo.dot %x, %0, precision = [DEFAULT, HIGHEST] : (tensor<4x8xf32>, tensor<8x4xf32>) ->
    tensor<4x4xf32>)",
     R"(%0 = "stablehlo.transpose"(%x) <{permutation = array<i64: 1, 0>}> {result_layout = dense<[0, 1]> :
    tensor<2xindex>, xla_shape = "f32[8,4]{0,1}"} : (tensor<4x8xf32>) -> tensor<8x4xf32>
%1 = "stablehlo.dot"(%x, %0) <{precision_config = [#stablehlo<precision DEFAULT>,
    #stablehlo<precision HIGHEST>]}> : (tensor<4x8xf32>, tensor<8x4xf32>) -> tensor<4x4xf32>)",
     R"(  %6 f32[8,4] = transpose %0 dims=[1,0]
  %7 f32[4,4] = dot %0 %6
)"},
    {R"(%0 = stablehlo.dot_general %x, %y, batching_dims = [0] x [0], contracting_dims = [1] x [1],
    precision = [DEFAULT, DEFAULT] : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4xf32>)",
     R"(%0 = "stablehlo.dot_general"(%x, %y) <{dot_dimension_numbers =
    #stablehlo.dot<lhs_batching_dimensions = [0], rhs_batching_dimensions = [0],
    lhs_contracting_dimensions = [1], rhs_contracting_dimensions = [1]>, precision_config =
    [#stablehlo<precision DEFAULT>, #stablehlo<precision DEFAULT>]}> : (tensor<4x8xf32>,
    tensor<4x8xf32>) -> tensor<4xf32>)",
     R"(  %6 f32[4] = dot_general %0 %1 lhs_batching_dims=[0] rhs_batching_dims=[0] )"
     R"(lhs_contracting_dims=[1] rhs_contracting_dims=[1]
)"},
    {R"(%0 = stablehlo.dot_general %x, %y, contracting_dims = [0] x [0] : (tensor<4x8xf32>,
    tensor<4x8xf32>) -> tensor<8x8xf32>)",
     R"(%0 = "stablehlo.dot_general"(%x, %y) <{dot_dimension_numbers =
    #stablehlo.dot<lhs_contracting_dimensions = [0], rhs_contracting_dimensions = [0]>}> :
    (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<8x8xf32>)",
     R"(  %6 f32[8,8] = dot_general %0 %1 lhs_batching_dims=[] rhs_batching_dims=[] )"
     R"(lhs_contracting_dims=[0] rhs_contracting_dims=[0]
)"},
    {R"(%0 = stablehlo.dynamic_slice %x, %i, %i, sizes = [1, 8] : (tensor<4x8xf32>, tensor<i32>,
    tensor<i32>) -> tensor<1x8xf32>)",
     R"(%0 = "stablehlo.dynamic_slice"(%x, %i, %i) <{slice_sizes = array<i64: 1, 8>}> : (tensor<4x8xf32>,
    tensor<i32>, tensor<i32>) -> tensor<1x8xf32>)",
     R"(  %6 f32[1,8] = dynamic_slice %0 %3 %3 sizes=[1,8]
)"},
    {R"(%0 = stablehlo.dynamic_update_slice %x, %y, %i, %i : (tensor<4x8xf32>, tensor<4x8xf32>,
    tensor<i32>, tensor<i32>) -> tensor<4x8xf32>)",
     R"(%0 = "stablehlo.dynamic_update_slice"(%x, %y, %i, %i) : (tensor<4x8xf32>, tensor<4x8xf32>,
    tensor<i32>, tensor<i32>) -> tensor<4x8xf32>)",
     R"(  %6 f32[4,8] = dynamic_update_slice %0 %1 %3 %3
)"},
    {R"(%0 = "stablehlo.gather"(%x, %n) <{dimension_numbers = #stablehlo.gather<offset_dims = [1],
    collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>, indices_are_sorted =
    false, slice_sizes = array<i64: 1, 8>}> : (tensor<4x8xf32>, tensor<4x1xi32>) -> tensor<4x8xf32>)",
     R"(%0 = "stablehlo.gather"(%x, %n) <{dimension_numbers = #stablehlo.gather<offset_dims = [1],
    collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>, indices_are_sorted =
    false, slice_sizes = array<i64: 1, 8>}> : (tensor<4x8xf32>, tensor<4x1xi32>) -> tensor<4x8xf32>)",
     R"(  %6 f32[4,8] = gather %0 %5 offset_dims=[1] collapsed_slice_dims=[0] operand_batching_dims=[] )"
     R"(start_indices_batching_dims=[] start_index_map=[0] index_vector_dim=1 sizes=[1,8]
)"},
    {R"(%0 = stablehlo.iota dim = 1 : tensor<2x3xui8>)",
     R"(%0 = "stablehlo.iota"() <{iota_dimension = 1 : i64}> : () -> tensor<2x3xui8>)",
     R"(  %6 u8[2,3] = iota dim=1
)"},
    {R"(%0 = stablehlo.pad %x, %s, low = [0, -1], high = [1, 0], interior = [0, 2] : (tensor<4x8xf32>,
    tensor<f32>) -> tensor<5x21xf32>)",
     R"(%0 = "stablehlo.pad"(%x, %s) <{edge_padding_high = array<i64: 1, 0>, edge_padding_low = array<i64:
    0, -1>, interior_padding = array<i64: 0, 2>}> : (tensor<4x8xf32>, tensor<f32>) ->
    tensor<5x21xf32>)",
     R"(  %6 f32[5,21] = pad %0 %2 low=[0,-1] high=[1,0] interior=[0,2]
)"},
    {R"(%0 = stablehlo.reduce(%x init: %s) applies stablehlo.maximum across dimensions = [0, 1] :
    (tensor<4x8xf32>, tensor<f32>) -> tensor<f32>)",
     R"(%0 = "stablehlo.reduce"(%x, %s) <{dimensions = array<i64: 0, 1>}> ({
^bb0(%arg6: tensor<f32>, %arg7: tensor<f32>):
  %1 = "stablehlo.maximum"(%arg6, %arg7) : (tensor<f32>, tensor<f32>) -> tensor<f32>
  "stablehlo.return"(%1) : (tensor<f32>) -> ()
}) : (tensor<4x8xf32>, tensor<f32>) -> tensor<f32>)",
     R"(  %6 f32[] = reduce %0 %2 fold=max dims=[0,1]
)"},
    {R"(%0 = stablehlo.reshape %x : (tensor<4x8xf32>) -> tensor<32xf32>)",
     R"(%0 = "stablehlo.reshape"(%x) : (tensor<4x8xf32>) -> tensor<32xf32>)",
     R"(  %6 f32[32] = reshape %0
)"},
    {R"(%0 = stablehlo.reverse %x, dims = [1] : tensor<4x8xf32>)",
     R"(%0 = "stablehlo.reverse"(%x) <{dimensions = array<i64: 1>}> : (tensor<4x8xf32>) -> tensor<4x8xf32>)",
     R"(  %6 f32[4,8] = reverse %0 dims=[1]
)"},
    {R"(%0 = "stablehlo.scatter"(%x, %n, %y) <{indices_are_sorted = false, scatter_dimension_numbers =
    #stablehlo.scatter<update_window_dims = [1], inserted_window_dims = [0],
    scatter_dims_to_operand_dims = [0], index_vector_dim = 1>, unique_indices = true}> ({
^bb0(%a: tensor<f32>, %b: tensor<f32>):
  %1 = stablehlo.multiply %a, %b : tensor<f32>
  stablehlo.return %1 : tensor<f32>
}) : (tensor<4x8xf32>, tensor<4x1xi32>, tensor<4x8xf32>) -> tensor<4x8xf32>)",
     R"(%0 = "stablehlo.scatter"(%x, %n, %y) <{indices_are_sorted = false, scatter_dimension_numbers =
    #stablehlo.scatter<update_window_dims = [1], inserted_window_dims = [0],
    scatter_dims_to_operand_dims = [0], index_vector_dim = 1>, unique_indices = true}> ({
^bb0(%arg6: tensor<f32>, %arg7: tensor<f32>):
  %1 = "stablehlo.multiply"(%arg6, %arg7) : (tensor<f32>, tensor<f32>) -> tensor<f32>
  "stablehlo.return"(%1) : (tensor<f32>) -> ()
}) : (tensor<4x8xf32>, tensor<4x1xi32>, tensor<4x8xf32>) -> tensor<4x8xf32>)",
     R"(  %6 f32[4,8] = scatter %0 %5 %1 fold=mul update_window_dims=[1] inserted_window_dims=[0] )"
     R"(input_batching_dims=[] scatter_indices_batching_dims=[] scatter_dims_to_operand_dims=[0] )"
     R"(index_vector_dim=1
)"},
    {R"(%0 = stablehlo.slice %x [1:4, 0:8:2] : (tensor<4x8xf32>) -> tensor<3x4xf32>)",
     R"(%0 = "stablehlo.slice"(%x) <{limit_indices = array<i64: 4, 8>, start_indices = array<i64: 1, 0>,
    strides = array<i64: 1, 2>}> : (tensor<4x8xf32>) -> tensor<3x4xf32>)",
     R"(  %6 f32[3,4] = slice %0 starts=[1,0] limits=[4,8] strides=[1,2]
)"},
    {R"(%0 = "stablehlo.all_gather"(%x) <{all_gather_dim = 1 : i64, channel_handle =
    #stablehlo.channel_handle<handle = 1, type = 0>, replica_groups =
    #stablehlo.replica_group_mesh_axes<mesh = @mesh, axes = [#stablehlo.axis_ref<name = "a">]>,
    use_global_device_ids}> : (tensor<4x8xf32>) -> tensor<4x16xf32>)",
     R"(%0 = "stablehlo.all_gather"(%x) <{all_gather_dim = 1 : i64, channel_handle =
    #stablehlo.channel_handle<handle = 1, type = 0>, replica_groups =
    #stablehlo.replica_group_mesh_axes<mesh = @mesh, axes = [#stablehlo.axis_ref<name = "a">]>,
    use_global_device_ids}> : (tensor<4x8xf32>) -> tensor<4x16xf32>)",
     R"(  %6 f32[4,16] = all_gather %0 dim=1 groups=[[0,2],[1,3]] channel=1
)"},
    {R"(%0:2 = "stablehlo.all_reduce"(%x, %s) <{channel_handle = #stablehlo.channel_handle<handle = 1, type
    = 0>, replica_groups = dense<[[0, 1], [2, 3]]> : tensor<2x2xi64>, use_global_device_ids}> ({
^bb0(%a: tensor<f32>, %b: tensor<f32>):
  %1 = stablehlo.minimum %a, %b : tensor<f32>
  stablehlo.return %1 : tensor<f32>
}) : (tensor<4x8xf32>, tensor<f32>) -> (tensor<4x8xf32>, tensor<f32>))",
     R"(%0:2 = "stablehlo.all_reduce"(%x, %s) <{channel_handle = #stablehlo.channel_handle<handle = 1, type
    = 0>, replica_groups = dense<[[0, 1], [2, 3]]> : tensor<2x2xi64>, use_global_device_ids}> ({
^bb0(%arg6: tensor<f32>, %arg7: tensor<f32>):
  %1 = "stablehlo.minimum"(%arg6, %arg7) : (tensor<f32>, tensor<f32>) -> tensor<f32>
  "stablehlo.return"(%1) : (tensor<f32>) -> ()
}) : (tensor<4x8xf32>, tensor<f32>) -> (tensor<4x8xf32>, tensor<f32>))",
     R"(  %6 f32[4,8], %7 f32[] = all_reduce %0 %2 fold=min groups=[[0,1],[2,3]] channel=1
)"},
    {R"(%0 = "stablehlo.all_to_all"(%x) <{channel_handle = #stablehlo.channel_handle<handle = 2, type = 0>,
    concat_dimension = 0 : i64, replica_groups = dense<[[0, 1], [2, 3]]> : tensor<2x2xi64>,
    split_count = 2 : i64, split_dimension = 1 : i64}> : (tensor<4x8xf32>) -> tensor<8x4xf32>)",
     R"(%0 = "stablehlo.all_to_all"(%x) <{channel_handle = #stablehlo.channel_handle<handle = 2, type = 0>,
    concat_dimension = 0 : i64, replica_groups = dense<[[0, 1], [2, 3]]> : tensor<2x2xi64>,
    split_count = 2 : i64, split_dimension = 1 : i64}> : (tensor<4x8xf32>) -> tensor<8x4xf32>)",
     R"(  %6 f32[8,4] = all_to_all %0 split_dim=1 concat_dim=0 groups=[[0,1],[2,3]] channel=2
)"},
    {R"(%0 = "stablehlo.collective_broadcast"(%x) <{channel_handle = #stablehlo.channel_handle<handle = 1,
    type = 0>, replica_groups = dense<[[0, 1], [3, 2]]> : tensor<2x2xi64>}> : (tensor<4x8xf32>) ->
    tensor<4x8xf32>)",
     R"(%0 = "stablehlo.collective_broadcast"(%x) <{channel_handle = #stablehlo.channel_handle<handle = 1,
    type = 0>, replica_groups = dense<[[0, 1], [3, 2]]> : tensor<2x2xi64>}> : (tensor<4x8xf32>) ->
    tensor<4x8xf32>)",
     R"(  %6 f32[4,8] = collective_broadcast %0 groups=[[0,1],[3,2]] channel=1
)"},
    {R"(%0:2 = "stablehlo.collective_broadcast"(%x, %s) <{channel_handle = #stablehlo.channel_handle<handle = 1,
    type = 0>, replica_groups = dense<[[3, 2]]> : tensor<1x2xi64>}> : (tensor<4x8xf32>, tensor<f32>) ->
    (tensor<4x8xf32>, tensor<f32>))",
     R"(%0:2 = "stablehlo.collective_broadcast"(%x, %s) <{channel_handle = #stablehlo.channel_handle<handle = 1,
    type = 0>, replica_groups = dense<[[3, 2]]> : tensor<1x2xi64>}> : (tensor<4x8xf32>, tensor<f32>) ->
    (tensor<4x8xf32>, tensor<f32>))",
     R"(  %6 f32[4,8], %7 f32[] = collective_broadcast %0 %2 groups=[[3,2]] channel=1
)"},
    {R"(%r = stablehlo.constant dense<1> : tensor<1xi32>
%0 = "stablehlo.collective_broadcast"(%x, %r) <{channel_handle = #stablehlo.channel_handle<handle = 1,
    type = 0>, has_dynamic_root, replica_groups = dense<[[0, 1], [3, 2]]> : tensor<2x2xi64>}> :
    (tensor<4x8xf32>, tensor<1xi32>) -> tensor<4x8xf32>)",
     R"(%r = "stablehlo.constant"() <{value = dense<1> : tensor<1xi32>}> : () -> tensor<1xi32>
%0 = "stablehlo.collective_broadcast"(%x, %r) <{channel_handle = #stablehlo.channel_handle<handle = 1,
    type = 0>, has_dynamic_root, replica_groups = dense<[[0, 1], [3, 2]]> : tensor<2x2xi64>}> :
    (tensor<4x8xf32>, tensor<1xi32>) -> tensor<4x8xf32>)",
     R"(  %6 i32[1] = constant value=1
  %7 f32[4,8] = collective_broadcast_from %0 %6 groups=[[0,1],[3,2]] channel=1
)"},
    {R"(%0:2 = "stablehlo.collective_reduce"(%x, %s) <{channel_handle = #stablehlo.channel_handle<handle = 2,
    type = 0>, replica_groups = dense<[[2, 1]]> : tensor<1x2xi64>, use_global_device_ids}> ({
^bb0(%a: tensor<f32>, %b: tensor<f32>):
  %1 = stablehlo.maximum %a, %b : tensor<f32>
  stablehlo.return %1 : tensor<f32>
}) : (tensor<4x8xf32>, tensor<f32>) -> (tensor<4x8xf32>, tensor<f32>))",
     R"(%0:2 = "stablehlo.collective_reduce"(%x, %s) <{channel_handle = #stablehlo.channel_handle<handle = 2,
    type = 0>, replica_groups = dense<[[2, 1]]> : tensor<1x2xi64>, use_global_device_ids}> ({
^bb0(%a: tensor<f32>, %b: tensor<f32>):
  %1 = "stablehlo.maximum"(%a, %b) : (tensor<f32>, tensor<f32>) -> tensor<f32>
  "stablehlo.return"(%1) : (tensor<f32>) -> ()
}) : (tensor<4x8xf32>, tensor<f32>) -> (tensor<4x8xf32>, tensor<f32>))",
     R"(  %6 f32[4,8], %7 f32[] = collective_reduce %0 %2 fold=max groups=[[2,1]] channel=2
)"},
    {R"(%r = stablehlo.constant dense<1> : tensor<1xi32>
%0 = "stablehlo.collective_reduce"(%x, %r) <{channel_handle = #stablehlo.channel_handle<handle = 2, type = 0>,
    has_dynamic_root, replica_groups = dense<[[2, 1]]> : tensor<1x2xi64>, use_global_device_ids}> ({
^bb0(%a: tensor<f32>, %b: tensor<f32>):
  %1 = stablehlo.add %a, %b : tensor<f32>
  stablehlo.return %1 : tensor<f32>
}) : (tensor<4x8xf32>, tensor<1xi32>) -> tensor<4x8xf32>)",
     R"(%r = "stablehlo.constant"() <{value = dense<1> : tensor<1xi32>}> : () -> tensor<1xi32>
%0 = "stablehlo.collective_reduce"(%x, %r) <{channel_handle = #stablehlo.channel_handle<handle = 2, type = 0>,
    has_dynamic_root, replica_groups = dense<[[2, 1]]> : tensor<1x2xi64>, use_global_device_ids}> ({
^bb0(%a: tensor<f32>, %b: tensor<f32>):
  %1 = "stablehlo.add"(%a, %b) : (tensor<f32>, tensor<f32>) -> tensor<f32>
  "stablehlo.return"(%1) : (tensor<f32>) -> ()
}) : (tensor<4x8xf32>, tensor<1xi32>) -> tensor<4x8xf32>)",
     R"(  %6 i32[1] = constant value=1
  %7 f32[4,8] = collective_reduce_to %0 %6 fold=add groups=[[2,1]] channel=2
)"},
    {R"(%0 = "stablehlo.collective_permute"(%x) <{channel_handle = #stablehlo.channel_handle<handle = 1,
    type = 0>, source_target_pairs = dense<[[2, 0], [0, 1]]> : tensor<2x2xi64>}> :
    (tensor<4x8xf32>) -> tensor<4x8xf32>)",
     R"(%0 = "stablehlo.collective_permute"(%x) <{channel_handle = #stablehlo.channel_handle<handle = 1,
    type = 0>, source_target_pairs = dense<[[2, 0], [0, 1]]> : tensor<2x2xi64>}> :
    (tensor<4x8xf32>) -> tensor<4x8xf32>)",
     R"(  %6 f32[4,8] = collective_permute %0 pairs=[[0,1],[2,0]] channel=1
)"},
    {R"(%0 = "stablehlo.reduce_scatter"(%x) <{channel_handle = #stablehlo.channel_handle<handle = 1, type =
    0>, replica_groups = dense<[[0, 1], [2, 3]]> : tensor<2x2xi64>, scatter_dimension = 1 : i64,
    use_global_device_ids}> ({
^bb0(%a: tensor<f32>, %b: tensor<f32>):
  %1 = stablehlo.add %a, %b : tensor<f32>
  stablehlo.return %1 : tensor<f32>
}) : (tensor<4x8xf32>) -> tensor<4x4xf32>)",
     R"(%0 = "stablehlo.reduce_scatter"(%x) <{channel_handle = #stablehlo.channel_handle<handle = 1, type =
    0>, replica_groups = dense<[[0, 1], [2, 3]]> : tensor<2x2xi64>, scatter_dimension = 1 : i64,
    use_global_device_ids}> ({
^bb0(%arg6: tensor<f32>, %arg7: tensor<f32>):
  %1 = "stablehlo.add"(%arg6, %arg7) : (tensor<f32>, tensor<f32>) -> tensor<f32>
  "stablehlo.return"(%1) : (tensor<f32>) -> ()
}) : (tensor<4x8xf32>) -> tensor<4x4xf32>)",
     R"(  %6 f32[4,4] = reduce_scatter %0 fold=add dim=1 groups=[[0,1],[2,3]] channel=1
)"},
    {R"(%0 = stablehlo.partition_id : tensor<ui32>)", R"(%0 = "stablehlo.partition_id"() : () -> tensor<ui32>)",
     R"(  %6 u32[] = partition_id
)"},
    {R"(%0 = stablehlo.replica_id : tensor<ui32>)", R"(%0 = "stablehlo.replica_id"() : () -> tensor<ui32>)",
     R"(  %6 u32[] = replica_id
)"},
    {R"(%0:2 = stablehlo.optimization_barrier %x, %p : tensor<4x8xf32>, tensor<i1>)",
     R"(%0:2 = "stablehlo.optimization_barrier"(%x, %p) : (tensor<4x8xf32>, tensor<i1>) ->
    (tensor<4x8xf32>, tensor<i1>))",
     R"(  %6 f32[4,8], %7 i1[] = optimization_barrier %0 %4
)"},
    {R"(%0:2 = stablehlo.while(%a = %i, %b = %x) : tensor<i32>, tensor<4x8xf32>
cond {
  %1 = stablehlo.compare LT, %a, %i : (tensor<i32>, tensor<i32>) -> tensor<i1>
  stablehlo.return %1 : tensor<i1>
} do {
  %1 = stablehlo.add %a, %a : tensor<i32>
  stablehlo.return %1, %y : tensor<i32>, tensor<4x8xf32>
})",
     R"(%0:2 = "stablehlo.while"(%i, %x) ({
^bb0(%arg8: tensor<i32>, %arg9: tensor<4x8xf32>):
  %2 = "stablehlo.compare"(%arg8, %i) <{comparison_direction = #stablehlo<comparison_direction
    LT>}> : (tensor<i32>, tensor<i32>) -> tensor<i1>
  "stablehlo.return"(%2) : (tensor<i1>) -> ()
}, {
^bb0(%arg6: tensor<i32>, %arg7: tensor<4x8xf32>):
  %1 = "stablehlo.add"(%arg6, %arg6) : (tensor<i32>, tensor<i32>) -> tensor<i32>
  "stablehlo.return"(%1, %y) : (tensor<i32>, tensor<4x8xf32>) -> ()
}) : (tensor<i32>, tensor<4x8xf32>) -> (tensor<i32>, tensor<4x8xf32>))",
     R"(  %6 i32[], %7 f32[4,8] = while %3 %0
  cond
    argument %8 i32[]
    argument %9 f32[4,8]
    %10 i1[] = compare %8 %3 direction=LT
    return %10
  body
    argument %11 i32[]
    argument %12 f32[4,8]
    %13 i32[] = add %11 %11
    return %13 %1
)"},
    {R"(%0 = "stablehlo.if"(%p) ({
  stablehlo.return %x : tensor<4x8xf32>
}, {
  %1 = stablehlo.negate %y : tensor<4x8xf32>
  stablehlo.return %1 : tensor<4x8xf32>
}) : (tensor<i1>) -> tensor<4x8xf32>)",
     R"(%0 = "stablehlo.if"(%p) ({
  "stablehlo.return"(%x) : (tensor<4x8xf32>) -> ()
}, {
  %1 = "stablehlo.negate"(%y) : (tensor<4x8xf32>) -> tensor<4x8xf32>
  "stablehlo.return"(%1) : (tensor<4x8xf32>) -> ()
}) : (tensor<i1>) -> tensor<4x8xf32>)",
     R"(  %6 f32[4,8] = if %4
  then
    return %0
  else
    %7 f32[4,8] = negate %1
    return %7
)"},
    {R"(%0 = stablehlo.reduce(%x init: %s) across dimensions = [1] : (tensor<4x8xf32>, tensor<f32>) ->
    tensor<4xf32>
 reducer(%a: tensor<f32>, %b: tensor<f32>)  {
  %1 = stablehlo.add %b, %a : tensor<f32>
  stablehlo.return %1 : tensor<f32>
})",
     R"(%0 = "stablehlo.reduce"(%x, %s) <{dimensions = array<i64: 1>}> ({
^bb0(%arg6: tensor<f32>, %arg7: tensor<f32>):
  %1 = "stablehlo.add"(%arg7, %arg6) : (tensor<f32>, tensor<f32>) -> tensor<f32>
  "stablehlo.return"(%1) : (tensor<f32>) -> ()
}) : (tensor<4x8xf32>, tensor<f32>) -> tensor<4xf32>)",
     R"(  %6 f32[4] = reduce %0 %2 fold=add dims=[1]
)"},
    {R"(%0 = stablehlo.sqrt %x {mhlo.frontend = {a = [1, "b"], c}, sdy.sharding =
    #sdy.sharding_per_value<[<@mesh, [{"a"}, {}]>]>} : tensor<4x8xf32>)",
     R"(%0 = "stablehlo.sqrt"(%x) {mhlo.frontend = {a = [1, "b"], c}, sdy.sharding =
    #sdy.sharding_per_value<[<@mesh, [{"a"}, {}]>]>} : (tensor<4x8xf32>) -> tensor<4x8xf32>)",
     R"(  %6 f32[4,8] = sqrt %0
)"},
};

}  // namespace

const std::span<const StablehloCase> kStablehloCases = kCases;

}  // namespace axccl::program
