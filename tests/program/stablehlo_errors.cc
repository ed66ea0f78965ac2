#include "tests/program/stablehlo_cases.h"

namespace axccl::program {
namespace {

constexpr StablehloError kErrors[] = {
    // operations
    {"%0 = \"stablehlo.custom_call\"(%x) {call_target_name = \"f\"} : (tensor<4x8xf32>) -> tensor<4x8xf32>",
     "4 column 6:",
     "'stablehlo.custom_call' is not supported; supported are func.call, mhlo.copy, sdy.manual_computation, and of "
     "stablehlo abs"},
    {"%0 = stablehlo.custom_call @f(%x) : (tensor<4x8xf32>) -> tensor<4x8xf32>", "4 column 6:", "custom_call"},
    {"\n%0 = stablehlo.send %x : tensor<4x8xf32>", "5 column 6:", "'stablehlo.send' is not supported"},
    {"%0 = chlo.erf %x : tensor<4x8xf32>", "4 column 6:", "'chlo.erf' is not supported"},
    {"%0 = stablehlo.all_gather %x : tensor<4x8xf32>", "4 column 6:", "expected the generic form"},
    {"%0 = 7", "4 column 6:", "expected a word, found '7'"},
    {"%0 = call @nobody(%x) : (tensor<4x8xf32>) -> tensor<4x8xf32>", "4 column 11:", "found 'nobody'"},
    {"%0 = call @main(%x) : (tensor<4x8xf32>) -> tensor<4x8xf32>",
     "4 column 6:", "the arguments and results of 'main'"},
    {"call @main(%x, %y, %s, %i, %p, %n) : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<f32>, tensor<i32>, tensor<i1>, "
     "tensor<4x1xi32>) -> ()",
     "4 column 1:", "'main' calls itself"},
    {"stablehlo.return", "4 column 1:", "expected 'func.return'"},
    // names
    {"%0 = stablehlo.abs %z : tensor<4x8xf32>", "4 column 20:", "defined above, found '%z'"},
    {"%0a = stablehlo.abs %x : tensor<4x8xf32>", "4 column 3:", "expected '='"},
    {"%0 = call @-(%x) : (tensor<4x8xf32>) -> tensor<4x8xf32>", "4 column 12:", "a name behind '@'"},
    {"%0, = stablehlo.abs %x : tensor<4x8xf32>", "4 column 5:", "a name that begins with '%'"},
    {"%0 = stablehlo.abs %x#1 : tensor<4x8xf32>", "4 column 20:", "'%x' has only 1 value"},
    {"%x = stablehlo.abs %x : tensor<4x8xf32>", "4 column 1:", "not defined yet, found 'x'"},
    {"%0:2 = stablehlo.abs %x : tensor<4x8xf32>", "4 column 1:", "names for 1 result"},
    {"%0 = \"stablehlo.if\"(%p) ({\n %1 = stablehlo.abs %x : tensor<4x8xf32>\n stablehlo.return\n}, {\n "
     "stablehlo.return %1 : tensor<4x8xf32>\n}) : (tensor<i1>) -> ()",
     "8 column 19:", "found '%1'"},
    // numbers of operands, results, regions
    {"%0 = \"stablehlo.add\"(%x) : (tensor<4x8xf32>) -> tensor<4x8xf32>",
     "4 column 6:", "expected 2 operands of stablehlo.add, found 1"},
    {"\"stablehlo.abs\"(%x) : (tensor<4x8xf32>) -> ()", "4 column 1:", "expected 1 result of stablehlo.abs, found 0"},
    {"%0 = \"stablehlo.reduce\"(%x, %s) <{dimensions = array<i64: 0>}> : (tensor<4x8xf32>, tensor<f32>) -> "
     "tensor<8xf32>",
     "4 column 6:", "expected 1 region of stablehlo.reduce, found 0"},
    {"%0:2 = stablehlo.reduce(%x init: %s), (%x init: %s) across dimensions = [1] : (tensor<4x8xf32>)",
     "4 column 8:", "several at once are not supported"},
    // types
    {"%0 = stablehlo.abs %x : tensor<4xf32>", "4 column 25:", "operand 0 is f32[4,8] where it is defined, but f32[4]"},
    {"%0 = \"stablehlo.abs\"(%x) : (tensor<4x8xf32>, tensor<f32>) -> tensor<4x8xf32>",
     "4 column 28:", "expected 1 type for the operands, found 2"},
    {"%0 = stablehlo.reshape %x : (tensor<4x8xf32>) -> tensor<?xf32>", "4 column 50:", "dynamic shape"},
    {"%0 = stablehlo.reshape %x : (tensor<4x8xf32>) -> tensor<*xf32>", "4 column 50:", "dynamic shape"},
    {"%0 = stablehlo.convert %x : (tensor<4x8xf32>) -> tensor<4x8xcomplex<f32>>",
     "4 column 50:", "'complex<f32' are not"},
    {"%0 = stablehlo.convert %x : (tensor<4x8xf32>) -> tensor<4x8x!quant.uniform<i8:f32, 0.1>>",
     "4 column 50:", "'!quant.uniform<i8:f32, 0.1' are not supported; supported are tensors of f64"},
    {"%0 = stablehlo.convert %x : (tensor<4x8xf32>) -> tensor<4x8xu8>", "4 column 50:", "'u8' are not supported"},
    {"%0 = stablehlo.iota dim = 0 : tensor<4xindex>", "4 column 31:", "'index' are not supported"},
    {"%0 = stablehlo.iota dim = 0 : !stablehlo.token", "4 column 31:", "this type is not supported"},
    {"%0 = stablehlo.iota dim = 0 : memref<4xf32>", "4 column 31:", "'memref' is not supported"},
    {"%0 = stablehlo.iota dim = 0 : tensor<1x1x1x1x1x1x1x1x1xf32>", "4 column 31:", "at most 8 dimensions"},
    {"%0 = stablehlo.iota dim = 0 : tensor<4294967296x4294967296xi8>", "4 column 31:", "less than 2^63 bytes"},
    // attributes
    {"%0 = stablehlo.abs %x {speed = 1} : tensor<4x8xf32>",
     "4 column 24:", "'speed' of stablehlo.abs is not supported; ignored are mhlo.*"},
    {"%0 = stablehlo.iota dim = 0 {sped = 1} : tensor<4xi32>", "4 column 30:",
     "supported are iota_dimension; ignored are mhlo.*, jax.*, sdy.sharding, result_layout and xla_shape"},
    {"%0 = stablehlo.abs %x {mhlo.a = 1, mhlo.a = 2} : tensor<4x8xf32>", "4 column 36:", "'mhlo.a' is here twice"},
    {"%0 = stablehlo.abs %x {mhlo.a = #other.thing<1>} : tensor<4x8xf32>", "4 column 33:", "'#other.thing' is not"},
    {"%0 = stablehlo.abs %x {mhlo.a = #stablehlo <a b>} : tensor<4x8xf32>",
     "4 column 43:", "'<' without blanks before"},
    {"%0 = stablehlo.abs %x {mhlo.a = what} : tensor<4x8xf32>", "4 column 33:", "expected an attribute, found 'what"},
    {"%0 = stablehlo.transpose %x, sizes = [1, 0] : (tensor<4x8xf32>) -> tensor<8x4xf32>",
     "4 column 30:", "expected 'dims'"},
    {"%0 = stablehlo.dot_general %x, %y, contracting_dims = [0] x [0], algorithm = <lhs_precision_type = tf32>",
     "4 column 66:",
     "expected an operand, or an attribute of stablehlo.dot_general that is supported, found 'algorithm"},
    {"%0 = \"stablehlo.iota\"() : () -> tensor<4xi32>", "4 column 6:", "expected the attribute 'iota_dimension'"},
    {"%0 = \"stablehlo.iota\"() <{iota_dimension = 0 : i32}> : () -> tensor<4xi32>", "4 column 44:", "such as 1 : i64"},
    {"%0 = stablehlo.iota dim = -1 : tensor<4xi32>", "4 column 25:", "not negative"},
    {"%0 = stablehlo.reverse %x, dims = [-1] : tensor<4x8xf32>", "4 column 35:", "without negative numbers"},
    {"%0 = stablehlo.compare TOP, %x, %y : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xi1>",
     "4 column 24:", "expected EQ, NE, GE, GT, LE or LT"},
    {"%0 = stablehlo.compare LT, %x, %y, TOTALORDER : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xi1>",
     "4 column 36:", "'TOTALORDER' is not supported; supported are FLOAT"},
    {"%0 = \"stablehlo.gather\"(%x, %n) <{dimension_numbers = #stablehlo.gather<offset = [1]>, slice_sizes = "
     "array<i64: "
     "1, 8>}> : (tensor<4x8xf32>, tensor<4x1xi32>) -> tensor<4x8xf32>",
     "4 column 73:", "the field 'offset' of dimension_numbers"},
    {"%0 = stablehlo.dot %y, %y, precision = [DEFAULT, LOW] : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>",
     "4 column 38:", "up to two of DEFAULT, HIGH and HIGHEST as precision_config"},
    {"%0 = \"stablehlo.gather\"(%x, %n) <{dimension_numbers = #stablehlo.gather<>, indices_are_sorted = 0, slice_sizes "
     "= "
     "array<i64: 1, 8>}> : (tensor<4x8xf32>, tensor<4x1xi32>) -> tensor<4x8xf32>",
     "4 column 97:", "true or false as indices_are_sorted"},
    // reductions
    {"%0 = stablehlo.reduce(%x init: %s) applies stablehlo.subtract across dimensions = [1] : (tensor<4x8xf32>, "
     "tensor<f32>) -> tensor<4xf32>",
     "4 column 44:",
     "the region of stablehlo.reduce has the operation 'stablehlo.subtract'; supported is one operation"},
    {"%0 = stablehlo.reduce(%x init: %s) across dimensions = [1] : (tensor<4x8xf32>, tensor<f32>) -> tensor<4xf32>\n"
     "reducer(%a: tensor<f32>, %b: tensor<f32>) {\n%1 = stablehlo.add %a, %b : tensor<f32>\n"
     "%2 = stablehlo.abs %1 : tensor<f32>\nstablehlo.return %2 : tensor<f32>\n}",
     "7 column 6:", "more than one operation, 'stablehlo.abs'"},
    {"%0 = stablehlo.reduce(%x init: %s) across dimensions = [1] : (tensor<4x8xf32>, tensor<f32>) -> tensor<4xf32>\n"
     "reducer(%a: tensor<f32>, %b: tensor<f32>) {\nstablehlo.return %b : tensor<f32>\n}",
     "6 column 1:", "has no operation"},
    {"%0 = stablehlo.reduce(%x init: %s) across dimensions = [1] : (tensor<4x8xf32>, tensor<f32>) -> tensor<4xf32>\n"
     "reducer(%a: tensor<f32>, %b: tensor<f32>) {\n%1 = stablehlo.add %a, %a : tensor<f32>\n"
     "stablehlo.return %1 : tensor<f32>\n}",
     "6 column 6:", "does something else with its arguments"},
    {"%0 = stablehlo.reduce(%x init: %s) across dimensions = [1] : (tensor<4x8xf32>, tensor<f32>) -> tensor<4xf32>\n"
     "reducer(%a: tensor<i8>, %b: tensor<i8>) {\n%1 = stablehlo.add %a, %b : tensor<i8>\n"
     "stablehlo.return %1 : tensor<i8>\n}",
     "6 column 1:", "arguments that are not f32[]"},
    // elements
    {"%0 = stablehlo.constant dense<[1, 2]> : tensor<3xi32>",
     "4 column 31:", "a list of 3, the size of dimension 0, not of 2"},
    {"%0 = stablehlo.constant dense<[[1], 2]> : tensor<2x1xi32>", "4 column 37:", "expected '['"},
    {"%0 = stablehlo.constant dense<1> : tensor<f32>", "4 column 31:", "an element of the type f32, found '1>"},
    {"%0 = stablehlo.constant dense<1.0> : tensor<i32>", "4 column 31:", "an element of the type i32"},
    {"%0 = stablehlo.constant dense<nan> : tensor<f32>", "4 column 31:", "an element of the type f32"},
    {"%0 = stablehlo.constant dense<.5> : tensor<f32>", "4 column 31:", "an element of the type f32"},
    {"%0 = stablehlo.constant dense<1.0e39> : tensor<f32>", "4 column 31:", "an element of the type f32"},
    {"%0 = stablehlo.constant dense<7.0e4> : tensor<f16>", "4 column 31:", "an element of the type f16"},
    {"%0 = stablehlo.constant dense<0x17C00> : tensor<f16>", "4 column 31:", "an element of the type f16"},
    {"%0 = stablehlo.constant dense<128> : tensor<i8>", "4 column 31:", "an element of the type i8"},
    {"%0 = stablehlo.constant dense<-1> : tensor<ui8>", "4 column 31:", "an element of the type u8"},
    {"%0 = stablehlo.constant dense<1> : tensor<i1>", "4 column 31:", "an element of the type i1"},
    {"%0 = stablehlo.constant dense<> : tensor<1xi8>", "4 column 31:", "expected elements"},
    {"%0 = stablehlo.constant dense<\"0x010203\"> : tensor<2xi8>", "4 column 31:", "the bytes of one element, or of 2"},
    {"%0 = stablehlo.constant dense<\"0x0g\"> : tensor<2xi8>", "4 column 34:", "hexadecimal digits"},
    {"%0 = stablehlo.constant dense<\"0x0002\"> : tensor<2xi1>", "4 column 36:", "00 or 01"},
    {"%0 = \"stablehlo.constant\"() <{value = dense<1> : tensor<i32>}> : () -> tensor<2xi32>",
     "4 column 39:", "expected dense<...> of the type of the result, i32[2]"},
    {"%0 = stablehlo.constant dense_resource<a> : tensor<i8>", "4 column 25:", "expected an attribute"},
    // groups
    {"%0 = \"stablehlo.collective_permute\"(%x) <{source_target_pairs = dense<[[0, 1]]> : tensor<1x2xi64>}> : "
     "(tensor<4x8xf32>) -> tensor<4x8xf32>",
     "4 column 65:", "replica id 1 in the target of pair 0 is out of range"},
    {"%0 = \"stablehlo.collective_permute\"(%x) <{}> : (tensor<4x8xf32>) -> tensor<4x8xf32>",
     "4 column 6:", "expected the attribute 'source_target_pairs'"},
    {"%0 = \"stablehlo.collective_broadcast\"(%x) <{replica_groups = [0]}> : (tensor<4x8xf32>) -> tensor<4x8xf32>",
     "4 column 62:", "expected lists such as dense<[[0, 1]]>"},
    {"%0 = \"stablehlo.collective_broadcast\"(%x) <{replica_groups = dense<0> : tensor<9x9xi64>}> : (tensor<4x8xf32>) "
     "-> "
     "tensor<4x8xf32>",
     "4 column 62:", "ids that differ"},
    {"%0 = \"stablehlo.collective_broadcast\"(%x) <{has_dynamic_root, replica_groups = dense<0> : tensor<1x1xi64>}> : "
     "(tensor<4x8xf32>) -> tensor<4x8xf32>",
     "4 column 6:", "expected at least 2 operands of stablehlo.collective_broadcast, found 1"},
    {"%0 = \"stablehlo.collective_broadcast\"(%x, %n) <{has_dynamic_root = true, replica_groups = dense<0> : "
     "tensor<1x1xi64>}> : (tensor<4x8xf32>, tensor<4x1xi32>) -> tensor<4x8xf32>",
     "4 column 49:", "expected has_dynamic_root without a value"},
    {"%0 = \"stablehlo.all_gather\"(%x) <{all_gather_dim = 0 : i64, has_dynamic_root, replica_groups = dense<0> : "
     "tensor<1x1xi64>}> : (tensor<4x8xf32>) -> tensor<4x8xf32>",
     "4 column 61:", "'has_dynamic_root' of stablehlo.all_gather is not supported"},
    {"%0:2 = \"stablehlo.collective_reduce\"(%x, %n) <{has_dynamic_root, replica_groups = dense<0> : tensor<1x1xi64>}> "
     "({\n^bb0(%a: tensor<f32>, %b: tensor<f32>):\n%1 = stablehlo.add %a, %b : tensor<f32>\nstablehlo.return %1 : "
     "tensor<f32>\n}) : (tensor<4x8xf32>, tensor<4x1xi32>) -> (tensor<4x8xf32>, tensor<4x1xi32>)",
     "4 column 8:", "expected 1 result of stablehlo.collective_reduce, found 2"},
    {"%0 = \"stablehlo.collective_reduce\"(%x) <{replica_groups = dense<0> : tensor<1x1xi64>, use_global_device_ids}> "
     "({\n^bb0(%a: tensor<f32>, %b: tensor<f32>):\n%1 = stablehlo.add %a, %b : tensor<f32>\nstablehlo.return %1 : "
     "tensor<f32>\n}) : (tensor<4x8xf32>) -> tensor<4x8xf32>",
     "4 column 6:", "channel_id must be positive"},
    {"%0 = \"stablehlo.collective_broadcast\"(%x) <{channel_handle = 1, replica_groups = dense<0> : tensor<1x1xi64>}> "
     ": "
     "(tensor<4x8xf32>) -> tensor<4x8xf32>",
     "4 column 62:", "expected #stablehlo.channel_handle<handle = 1, type = 0>"},
    {"%0 = \"stablehlo.all_gather\"(%x) <{all_gather_dim = 0 : i64, replica_groups = dense<0> : tensor<1x1xi64>, "
     "use_global_device_ids}> : (tensor<4x8xf32>) -> tensor<4x8xf32>",
     "4 column 6:", "channel_id must be positive"},
    {"%0 = \"stablehlo.all_gather\"(%x) <{all_gather_dim = 0 : i64, replica_groups = "
     "#stablehlo.replica_group_mesh_axes<mesh "
     "= @other, axes = []>}> : (tensor<4x8xf32>) -> tensor<4x8xf32>",
     "4 column 113:", "expected the name of an sdy.mesh, found 'other'"},
    {"%0 = \"stablehlo.all_gather\"(%x) <{all_gather_dim = 0 : i64, replica_groups = "
     "#stablehlo.replica_group_mesh_axes<mesh "
     "= @mesh, axes = [#stablehlo.axis_ref<name = \"c\">]>}> : (tensor<4x8xf32>) -> tensor<4x8xf32>",
     "4 column 78:", "no axis \"c\""},
    {"%0 = \"stablehlo.all_to_all\"(%x) <{concat_dimension = 0 : i64, replica_groups = dense<0> : tensor<1x1xi64>, "
     "split_count = 2 : i64, split_dimension = 0 : i64}> : (tensor<4x8xf32>) -> tensor<4x8xf32>",
     "4 column 80:", "the group size must be split_count 2"},
};

constexpr StablehloError kModules[] = {
    {"", "1 column 1:", "expected 'module' or '\"builtin.module\"', found the end of the text"},
    {"module {\n}", "1 column 1:", "a function with the name main"},
    {"module {\n}\n}", "3 column 1:", "expected the end of the text"},
    {"module {\n  func.func @main() {\n    return\n  }\n", "5 column 1:", "found the end of the text"},
    {"module {\n  ml_program.global @x\n}", "2 column 3:", "'ml_program.global' is not supported in a module"},
    {"module {\n  func.func @main()\n}", "3 column 1:", "functions without a body are not supported"},
    {"module {\nfunc.func @main() {\nreturn\n}\nfunc.func @main() {\nreturn\n}\n}",
     "5 column 11:", "a name that is new, found 'main'"},
    {"module {\nfunc.func @main(%a: tensor<f32>) -> tensor<i1> {\nreturn %a : tensor<f32>\n}\n}",
     "2 column 11:", "returns the types that it declares"},
    {"module {\nfunc.func @main(%a: tensor<f32> {x = 1}) {\nreturn\n}\n}",
     "2 column 34:", "'x' of arguments is not supported; supported are jax.buffer_donor, tf.aliasing_output"},
    {"module {\nfunc.func @main() -> (tensor<f32> {x = 1}) {\nreturn\n}\n}", "2 column 36:", "'x' of results"},
    {"module {\nfunc.func @main() attributes {x} {\nreturn\n}\n}", "2 column 31:", "'x' of func.func"},
    {"module attributes {x} {\nfunc.func @main() {\nreturn\n}\n}", "1 column 20:", "'x' of modules"},
    {"module attributes {mhlo.num_replicas = 0 : i32} {\nfunc.func @main() {\nreturn\n}\n}",
     "1 column 40:", "a number from 1 to 1048576"},
    {"module attributes {mhlo.num_replicas = 1024 : i32, mhlo.num_partitions = 1025 : i32} {\nfunc.func @main() "
     "{\nreturn\n}\n}",
     "1 column 1:", "at most 2^20 ranks"},
    {"module {\nsdy.mesh @m = <[\"a\"=1048577]>\nfunc.func @main() {\nreturn\n}\n}", "2 column 1:", "2^20 devices"},
    {"module @a attributes {mhlo.x = \"a", "1 column 33:", "the end of this string"},
    {"module @a attributes {mhlo.x = \"\\q\"", "1 column 33:", "an escape sequence"},
    {"module @a attributes {mhlo.x = #sdy.sharding<@m, [{}, 1]>", "1 column 55:", "expected '{'"},
    {"module @a attributes {mhlo.x = #sdy.a<1>", "1 column 32:", "the attribute '#sdy.a' is not supported"},
    {"module @a attributes {mhlo.x = 256 : i8", "1 column 38:", "the type of a number that has this value, found 'i8'"},
    {"module {\nfunc.func @f() {\ncall @g() : () -> ()\nreturn\n}\nfunc.func @g() {\ncall @f() : () -> ()\n"
     "return\n}\nfunc.func @main() {\nreturn\n}\n}",
     "7 column 1:", "'f' calls itself, which is not supported"},
    {"module {\n  func.func @main() {\n    return\n  ^bb1:\n  }\n}", "4 column 3:", "expected '}', found '^bb1"},
};

}  // namespace

const std::span<const StablehloError> kStablehloErrors = kErrors;
const std::span<const StablehloError> kModuleErrors = kModules;

}  // namespace axccl::program
