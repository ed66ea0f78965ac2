// Public test vectors V01 to V17 in the schema axccl-vectors/1: each rank's input, and what every rank must hold
// afterwards. Each names the test of the other project that it restates; only numbers and names are taken over. V09 is
// cut to 5 of its 137 elements.
#pragma once

namespace axccl::tests {

inline constexpr const char* kPublicVectors = R"json({"schema": "axccl-vectors/1", "cases": [
{"name": "V01_all_gather_dim1", "source": {"repo": "openxla/stablehlo", "path":
  "stablehlo/tests/interpret/all_gather.mlir", "test": "cross_replica"}, "op": "all_gather", "mode":
  "cross_replica", "num_replicas": 2, "num_partitions": 1, "attributes": {"all_gather_dim": 1, "replica_groups":
  [[0, 1]], "channel_id": 0}, "inputs": [[{"dtype": "i64", "shape": [2, 2], "data": [1, 2, 3, 4]}], [{"dtype":
  "i64", "shape": [2, 2], "data": [5, 6, 7, 8]}]], "expected": [[{"dtype": "i64", "shape": [2, 4], "data": [1, 2, 5,
  6, 3, 4, 7, 8]}], [{"dtype": "i64", "shape": [2, 4], "data": [1, 2, 5, 6, 3, 4, 7, 8]}]]},
{"name": "V01b_all_gather_cross_replica_and_partition", "source": {"repo": "openxla/stablehlo", "path":
  "stablehlo/tests/interpret/all_gather.mlir", "test": "cross_replica_and_partition_issue_1933"}, "op":
  "all_gather", "mode": "cross_replica_and_partition", "num_replicas": 2, "num_partitions": 2, "attributes":
  {"all_gather_dim": 1, "replica_groups": [[0, 1]], "channel_id": 1}, "inputs": [[{"dtype": "i64", "shape": [2, 2],
  "data": [5, 6, 7, 8]}], [{"dtype": "i64", "shape": [2, 2], "data": [5, 6, 7, 8]}], [{"dtype": "i64", "shape": [2,
  2], "data": [1, 2, 3, 4]}], [{"dtype": "i64", "shape": [2, 2], "data": [5, 6, 7, 8]}]], "expected": [[{"dtype":
  "i64", "shape": [2, 8], "data": [5, 6, 1, 2, 5, 6, 5, 6, 7, 8, 3, 4, 7, 8, 7, 8]}], [{"dtype": "i64", "shape": [2,
  8], "data": [5, 6, 1, 2, 5, 6, 5, 6, 7, 8, 3, 4, 7, 8, 7, 8]}], [{"dtype": "i64", "shape": [2, 8], "data": [5, 6,
  1, 2, 5, 6, 5, 6, 7, 8, 3, 4, 7, 8, 7, 8]}], [{"dtype": "i64", "shape": [2, 8], "data": [5, 6, 1, 2, 5, 6, 5, 6,
  7, 8, 3, 4, 7, 8, 7, 8]}]]},
{"name": "V02_reduce_scatter_dim1", "source": {"repo": "openxla/stablehlo", "path":
  "stablehlo/tests/interpret/reduce_scatter.mlir", "test": "cross_replica"}, "op": "reduce_scatter", "mode":
  "cross_replica", "num_replicas": 2, "num_partitions": 1, "attributes": {"scatter_dimension": 1, "replica_groups":
  [[0, 1]], "computation": "add", "channel_id": 0}, "inputs": [[{"dtype": "i64", "shape": [2, 4], "data": [1, 2, 3,
  4, 5, 6, 7, 8]}], [{"dtype": "i64", "shape": [2, 4], "data": [9, 10, 11, 12, 13, 14, 15, 16]}]], "expected":
  [[{"dtype": "i64", "shape": [2, 2], "data": [10, 12, 18, 20]}], [{"dtype": "i64", "shape": [2, 2], "data": [14,
  16, 22, 24]}]]},
{"name": "V03a_color_key_cross_replica", "source": {"repo": "iree-org/iree", "path":
  "compiler/plugins/input/StableHLO/Conversion/test/convert_collectives.mlir", "test": "cross_replica"}, "op":
  "group_table", "mode": "cross_replica", "num_replicas": 4, "num_partitions": 2, "attributes": {"replica_groups":
  [[0, 1, 2, 3]]}, "expected": {"color": [0, 1, 0, 1, 0, 1, 0, 1], "key": [0, 0, 1, 1, 2, 2, 3, 3]}},
{"name": "V03b_color_key_cross_replica_and_partition", "source": {"repo": "iree-org/iree", "path":
  "compiler/plugins/input/StableHLO/Conversion/test/convert_collectives.mlir", "test":
  "cross_replica_and_partition"}, "op": "group_table", "mode": "cross_replica_and_partition", "num_replicas": 4,
  "num_partitions": 2, "attributes": {"replica_groups": [[0, 1], [2, 3]]}, "expected": {"color": [0, 0, 0, 0, 1, 1,
  1, 1], "key": [0, 2, 1, 3, 0, 2, 1, 3]}},
{"name": "V03c_color_key_cross_partition", "source": {"repo": "iree-org/iree", "path":
  "compiler/plugins/input/StableHLO/Conversion/test/convert_collectives.mlir", "test": "cross_partition"}, "op":
  "group_table", "mode": "cross_partition", "num_replicas": 4, "num_partitions": 2, "attributes": {"replica_groups":
  [[0, 1]]}, "expected": {"color": [0, 0, 1, 1, 2, 2, 3, 3], "key": [0, 1, 0, 1, 0, 1, 0, 1]}},
{"name": "V03d_permute_peers", "source": {"repo": "iree-org/iree", "path":
  "compiler/plugins/input/StableHLO/Conversion/test/convert_collectives.mlir", "test": "collective_permute"}, "op":
  "permute_table", "num_replicas": 4, "num_partitions": 1, "attributes": {"source_target_pairs": [[0, 1], [1, 2],
  [2, 3], [3, 0]]}, "expected": {"send_to": [1, 2, 3, 0], "recv_from": [3, 0, 1, 2]}},
{"name": "V04_all_to_all_split1_concat0", "source": {"repo": "openxla/stablehlo", "path":
  "stablehlo/tests/interpret/all_to_all.mlir", "test": "cross_replica"}, "op": "all_to_all", "mode":
  "cross_replica", "num_replicas": 2, "num_partitions": 1, "attributes": {"split_dimension": 1, "concat_dimension":
  0, "split_count": 2, "replica_groups": [[0, 1]], "channel_id": 0}, "inputs": [[{"dtype": "i64", "shape": [2, 4],
  "data": [1, 2, 3, 4, 5, 6, 7, 8]}], [{"dtype": "i64", "shape": [2, 4], "data": [9, 10, 11, 12, 13, 14, 15, 16]}]],
  "expected": [[{"dtype": "i64", "shape": [4, 2], "data": [1, 2, 5, 6, 9, 10, 13, 14]}], [{"dtype": "i64", "shape":
  [4, 2], "data": [3, 4, 7, 8, 11, 12, 15, 16]}]]},
{"name": "V05_all_to_all_group_order", "source": {"repo": "openxla/stablehlo", "path":
  "stablehlo/tests/interpret/all_to_all.mlir", "test": "cross_replica_issue_2433"}, "op": "all_to_all", "mode":
  "cross_replica", "num_replicas": 2, "num_partitions": 1, "attributes": {"split_dimension": 1, "concat_dimension":
  0, "split_count": 2, "replica_groups": [[1, 0]], "channel_id": 0}, "inputs": [[{"dtype": "i64", "shape": [2, 4],
  "data": [1, 2, 3, 4, 5, 6, 7, 8]}], [{"dtype": "i64", "shape": [2, 4], "data": [9, 10, 11, 12, 13, 14, 15, 16]}]],
  "expected": [[{"dtype": "i64", "shape": [4, 2], "data": [11, 12, 15, 16, 3, 4, 7, 8]}], [{"dtype": "i64", "shape":
  [4, 2], "data": [9, 10, 13, 14, 1, 2, 5, 6]}]]},
{"name": "V06_all_to_all_grid_1x2x1x2", "source": {"repo": "iree-org/iree", "path":
  "tests/e2e/collectives/collectives_test.py", "test": "FourRanks.test_shard_all_to_all_on_4d_shard_along_1_axis"},
  "op": "all_to_all", "mode": "cross_replica", "num_replicas": 4, "num_partitions": 1, "attributes":
  {"split_dimension": 0, "concat_dimension": 1, "split_count": 2, "replica_groups": [[0, 2], [1, 3]], "channel_id":
  0}, "inputs": [[{"dtype": "f32", "shape": [2, 1], "data": [1, 2]}], [{"dtype": "f32", "shape": [2, 1], "data": [3,
  4]}], [{"dtype": "f32", "shape": [2, 1], "data": [5, 6]}], [{"dtype": "f32", "shape": [2, 1], "data": [7, 8]}]],
  "expected": [[{"dtype": "f32", "shape": [1, 2], "data": [1, 5]}], [{"dtype": "f32", "shape": [1, 2], "data": [3,
  7]}], [{"dtype": "f32", "shape": [1, 2], "data": [2, 6]}], [{"dtype": "f32", "shape": [1, 2], "data": [4, 8]}]]},
{"name": "V07_all_gather_dim1", "source": {"repo": "openxla/xla", "path": "xla/tests/collective_ops_test.cc",
  "test": "CollectiveOpsTest.AllGather_Dim1"}, "op": "all_gather", "mode": "cross_replica", "num_replicas": 2,
  "num_partitions": 1, "attributes": {"all_gather_dim": 1, "replica_groups": [[0, 1]], "channel_id": 0}, "inputs":
  [[{"dtype": "u32", "shape": [2, 1], "data": [10, 15]}], [{"dtype": "u32", "shape": [2, 1], "data": [11, 16]}]],
  "expected": [[{"dtype": "u32", "shape": [2, 2], "data": [10, 11, 15, 16]}], [{"dtype": "u32", "shape": [2, 2],
  "data": [10, 11, 15, 16]}]]},
{"name": "V08_reduce_scatter_dim1", "source": {"repo": "openxla/xla", "path": "xla/tests/collective_ops_test.cc",
  "test": "CollectiveOpsTest.ReduceScatter_Dim1"}, "op": "reduce_scatter", "mode": "cross_replica", "num_replicas":
  2, "num_partitions": 1, "attributes": {"scatter_dimension": 1, "replica_groups": [[0, 1]], "computation": "add",
  "channel_id": 0}, "inputs": [[{"dtype": "u32", "shape": [2, 4], "data": [1, 2, 3, 4, 5, 6, 7, 8]}], [{"dtype":
  "u32", "shape": [2, 4], "data": [10, 11, 12, 13, 14, 15, 16, 17]}]], "expected": [[{"dtype": "u32", "shape": [2,
  2], "data": [11, 13, 19, 21]}], [{"dtype": "u32", "shape": [2, 2], "data": [15, 17, 23, 25]}]]},
{"name": "V09_all_reduce_three_groups", "source": {"repo": "openxla/xla", "path":
  "xla/tests/collective_ops_test.cc", "test": "CollectiveOpsTest.AllReduce_ThreeReplicaGroups"}, "op": "all_reduce",
  "mode": "cross_replica", "num_replicas": 4, "num_partitions": 1, "attributes": {"replica_groups": [[0, -1], [1,
  2], [3, -1]], "computation": "add", "channel_id": 0}, "inputs": [[{"dtype": "f32", "shape": [5], "data": [0, 1, 2,
  3, 4]}], [{"dtype": "f32", "shape": [5], "data": [0, 1, 2, 3, 4]}], [{"dtype": "f32", "shape": [5], "data": [0, 1,
  2, 3, 4]}], [{"dtype": "f32", "shape": [5], "data": [0, 1, 2, 3, 4]}]], "expected": [[{"dtype": "f32", "shape":
  [5], "data": [0, 1, 2, 3, 4]}], [{"dtype": "f32", "shape": [5], "data": [0, 2, 4, 6, 8]}], [{"dtype": "f32",
  "shape": [5], "data": [0, 2, 4, 6, 8]}], [{"dtype": "f32", "shape": [5], "data": [0, 1, 2, 3, 4]}]]},
{"name": "V10_all_to_all_two_groups", "source": {"repo": "openxla/xla", "path": "xla/tests/collective_ops_test.cc",
  "test": "CollectiveOpsTest.AllToAll_TwoReplicaGroups"}, "op": "all_to_all", "mode": "cross_replica",
  "num_replicas": 4, "num_partitions": 1, "attributes": {"split_dimension": 0, "concat_dimension": 0, "split_count":
  2, "replica_groups": [[2, 1], [3, 0]], "channel_id": 0}, "inputs": [[{"dtype": "u32", "shape": [4], "data": [10,
  15, 20, 25]}], [{"dtype": "u32", "shape": [4], "data": [11, 16, 21, 26]}], [{"dtype": "u32", "shape": [4], "data":
  [12, 17, 22, 27]}], [{"dtype": "u32", "shape": [4], "data": [13, 18, 23, 28]}]], "expected": [[{"dtype": "u32",
  "shape": [4], "data": [23, 28, 20, 25]}], [{"dtype": "u32", "shape": [4], "data": [22, 27, 21, 26]}], [{"dtype":
  "u32", "shape": [4], "data": [12, 17, 11, 16]}], [{"dtype": "u32", "shape": [4], "data": [13, 18, 10, 15]}]]},
{"name": "V11_all_to_all_ordered_group", "source": {"repo": "openxla/xla", "path":
  "xla/tests/collective_ops_test.cc", "test": "CollectiveOpsTest.AllToAll_OrderedReplicaGroups"}, "op":
  "all_to_all", "mode": "cross_replica", "num_replicas": 4, "num_partitions": 1, "attributes": {"split_dimension":
  0, "concat_dimension": 0, "split_count": 4, "replica_groups": [[3, 2, 1, 0]], "channel_id": 0}, "inputs":
  [[{"dtype": "u32", "shape": [8], "data": [10, 15, 20, 25, 30, 35, 40, 45]}], [{"dtype": "u32", "shape": [8],
  "data": [11, 16, 21, 26, 31, 36, 41, 46]}], [{"dtype": "u32", "shape": [8], "data": [12, 17, 22, 27, 32, 37, 42,
  47]}], [{"dtype": "u32", "shape": [8], "data": [13, 18, 23, 28, 33, 38, 43, 48]}]], "expected": [[{"dtype": "u32",
  "shape": [8], "data": [43, 48, 42, 47, 41, 46, 40, 45]}], [{"dtype": "u32", "shape": [8], "data": [33, 38, 32, 37,
  31, 36, 30, 35]}], [{"dtype": "u32", "shape": [8], "data": [23, 28, 22, 27, 21, 26, 20, 25]}], [{"dtype": "u32",
  "shape": [8], "data": [13, 18, 12, 17, 11, 16, 10, 15]}]]},
{"name": "V12_collective_permute", "source": {"repo": "openxla/xla", "path": "xla/tests/collective_ops_test.cc",
  "test": "CollectiveOpsTest.CollectivePermute_Simple"}, "op": "collective_permute", "mode": "cross_replica",
  "num_replicas": 4, "num_partitions": 1, "attributes": {"source_target_pairs": [[1, 0], [0, 1], [2, 2]],
  "channel_id": 0}, "inputs": [[{"dtype": "u32", "shape": [2], "data": [10, 10]}], [{"dtype": "u32", "shape": [2],
  "data": [11, 11]}], [{"dtype": "u32", "shape": [2], "data": [12, 12]}], [{"dtype": "u32", "shape": [2], "data":
  [13, 13]}]], "expected": [[{"dtype": "u32", "shape": [2], "data": [11, 11]}], [{"dtype": "u32", "shape": [2],
  "data": [10, 10]}], [{"dtype": "u32", "shape": [2], "data": [12, 12]}], [{"dtype": "u32", "shape": [2], "data":
  [0, 0]}]]},
{"name": "V13_all_to_all_groups", "source": {"repo": "jax-ml/jax", "path": "tests/pmap_test.py", "test":
  "testAllToAllReplicaGroups (4 devices)"}, "op": "all_to_all", "mode": "cross_replica", "num_replicas": 4,
  "num_partitions": 1, "attributes": {"split_dimension": 0, "concat_dimension": 0, "split_count": 2,
  "replica_groups": [[0, 2], [1, 3]], "channel_id": 0}, "inputs": [[{"dtype": "i32", "shape": [2], "data": [0, 1]}],
  [{"dtype": "i32", "shape": [2], "data": [2, 3]}], [{"dtype": "i32", "shape": [2], "data": [4, 5]}], [{"dtype":
  "i32", "shape": [2], "data": [6, 7]}]], "expected": [[{"dtype": "i32", "shape": [2], "data": [0, 4]}], [{"dtype":
  "i32", "shape": [2], "data": [2, 6]}], [{"dtype": "i32", "shape": [2], "data": [1, 5]}], [{"dtype": "i32",
  "shape": [2], "data": [3, 7]}]]},
{"name": "V14_psum_scatter_ordered_groups", "source": {"repo": "jax-ml/jax", "path": "jax/_src/lax/parallel.py",
  "test": "psum_scatter docstring, axis_index_groups example"}, "op": "reduce_scatter", "mode": "cross_replica",
  "num_replicas": 4, "num_partitions": 1, "attributes": {"scatter_dimension": 0, "replica_groups": [[0, 2], [3, 1]],
  "computation": "add", "channel_id": 0}, "inputs": [[{"dtype": "i32", "shape": [4], "data": [0, 1, 2, 3]}],
  [{"dtype": "i32", "shape": [4], "data": [4, 5, 6, 7]}], [{"dtype": "i32", "shape": [4], "data": [8, 9, 10, 11]}],
  [{"dtype": "i32", "shape": [4], "data": [12, 13, 14, 15]}]], "expected": [[{"dtype": "i32", "shape": [2], "data":
  [8, 10]}], [{"dtype": "i32", "shape": [2], "data": [20, 22]}], [{"dtype": "i32", "shape": [2], "data": [12, 14]}],
  [{"dtype": "i32", "shape": [2], "data": [16, 18]}]]},
{"name": "V14b_reduce_scatter_scaled_n2", "source": {"repo": "pytorch/xla", "path":
  "test/pjrt/test_collective_ops_tpu.py", "test": "TestXMCollectiveOpsTpu._reduce_scatter (2 ranks)"}, "op":
  "reduce_scatter", "mode": "cross_replica", "num_replicas": 2, "num_partitions": 1, "attributes":
  {"scatter_dimension": 0, "replica_groups": [[0, 1]], "computation": "add", "scale": 0.5, "channel_id": 0},
  "inputs": [[{"dtype": "f32", "shape": [2], "data": [0, -1]}], [{"dtype": "f32", "shape": [2], "data": [0, -1]}]],
  "expected": [[{"dtype": "f32", "shape": [1], "data": [0]}], [{"dtype": "f32", "shape": [1], "data": [-1]}]]},
{"name": "V14b_reduce_scatter_scaled_n4", "source": {"repo": "pytorch/xla", "path":
  "test/pjrt/test_collective_ops_tpu.py", "test": "TestXMCollectiveOpsTpu._reduce_scatter (4 ranks)"}, "op":
  "reduce_scatter", "mode": "cross_replica", "num_replicas": 4, "num_partitions": 1, "attributes":
  {"scatter_dimension": 0, "replica_groups": [[0, 1, 2, 3]], "computation": "add", "scale": 0.25, "channel_id": 0},
  "inputs": [[{"dtype": "f32", "shape": [4], "data": [0, -1, -2, -3]}], [{"dtype": "f32", "shape": [4], "data": [0,
  -1, -2, -3]}], [{"dtype": "f32", "shape": [4], "data": [0, -1, -2, -3]}], [{"dtype": "f32", "shape": [4], "data":
  [0, -1, -2, -3]}]], "expected": [[{"dtype": "f32", "shape": [1], "data": [0]}], [{"dtype": "f32", "shape": [1],
  "data": [-1]}], [{"dtype": "f32", "shape": [1], "data": [-2]}], [{"dtype": "f32", "shape": [1], "data": [-3]}]]},
{"name": "V14b_reduce_scatter_scaled_n8", "source": {"repo": "pytorch/xla", "path":
  "test/pjrt/test_collective_ops_tpu.py", "test": "TestXMCollectiveOpsTpu._reduce_scatter (8 ranks)"}, "op":
  "reduce_scatter", "mode": "cross_replica", "num_replicas": 8, "num_partitions": 1, "attributes":
  {"scatter_dimension": 0, "replica_groups": [[0, 1, 2, 3, 4, 5, 6, 7]], "computation": "add", "scale": 0.125,
  "channel_id": 0}, "inputs": [[{"dtype": "f32", "shape": [8], "data": [0, -1, -2, -3, -4, -5, -6, -7]}], [{"dtype":
  "f32", "shape": [8], "data": [0, -1, -2, -3, -4, -5, -6, -7]}], [{"dtype": "f32", "shape": [8], "data": [0, -1,
  -2, -3, -4, -5, -6, -7]}], [{"dtype": "f32", "shape": [8], "data": [0, -1, -2, -3, -4, -5, -6, -7]}], [{"dtype":
  "f32", "shape": [8], "data": [0, -1, -2, -3, -4, -5, -6, -7]}], [{"dtype": "f32", "shape": [8], "data": [0, -1,
  -2, -3, -4, -5, -6, -7]}], [{"dtype": "f32", "shape": [8], "data": [0, -1, -2, -3, -4, -5, -6, -7]}], [{"dtype":
  "f32", "shape": [8], "data": [0, -1, -2, -3, -4, -5, -6, -7]}]], "expected": [[{"dtype": "f32", "shape": [1],
  "data": [0]}], [{"dtype": "f32", "shape": [1], "data": [-1]}], [{"dtype": "f32", "shape": [1], "data": [-2]}],
  [{"dtype": "f32", "shape": [1], "data": [-3]}], [{"dtype": "f32", "shape": [1], "data": [-4]}], [{"dtype": "f32",
  "shape": [1], "data": [-5]}], [{"dtype": "f32", "shape": [1], "data": [-6]}], [{"dtype": "f32", "shape": [1],
  "data": [-7]}]]},
{"name": "V15_all_to_all_split0_concat2_n2", "source": {"repo": "pytorch/xla", "path":
  "test/pjrt/test_collective_ops_tpu.py", "test": "TestXMCollectiveOpsTpu._all_to_all (2 ranks)"}, "op":
  "all_to_all", "mode": "cross_replica", "num_replicas": 2, "num_partitions": 1, "attributes": {"split_dimension":
  0, "concat_dimension": 2, "split_count": 2, "replica_groups": [[0, 1]], "channel_id": 0}, "inputs": [[{"dtype":
  "f32", "shape": [2, 2, 1], "data": [0, 0, -1, 0]}], [{"dtype": "f32", "shape": [2, 2, 1], "data": [0, 1, -1,
  1]}]], "expected": [[{"dtype": "f32", "shape": [1, 2, 2], "data": [0, 0, 0, 1]}], [{"dtype": "f32", "shape": [1,
  2, 2], "data": [-1, -1, 0, 1]}]]},
{"name": "V15_all_to_all_split0_concat2_n4", "source": {"repo": "pytorch/xla", "path":
  "test/pjrt/test_collective_ops_tpu.py", "test": "TestXMCollectiveOpsTpu._all_to_all (4 ranks)"}, "op":
  "all_to_all", "mode": "cross_replica", "num_replicas": 4, "num_partitions": 1, "attributes": {"split_dimension":
  0, "concat_dimension": 2, "split_count": 4, "replica_groups": [[0, 1, 2, 3]], "channel_id": 0}, "inputs":
  [[{"dtype": "f32", "shape": [4, 2, 1], "data": [0, 0, -1, 0, -2, 0, -3, 0]}], [{"dtype": "f32", "shape": [4, 2,
  1], "data": [0, 1, -1, 1, -2, 1, -3, 1]}], [{"dtype": "f32", "shape": [4, 2, 1], "data": [0, 2, -1, 2, -2, 2, -3,
  2]}], [{"dtype": "f32", "shape": [4, 2, 1], "data": [0, 3, -1, 3, -2, 3, -3, 3]}]], "expected": [[{"dtype": "f32",
  "shape": [1, 2, 4], "data": [0, 0, 0, 0, 0, 1, 2, 3]}], [{"dtype": "f32", "shape": [1, 2, 4], "data": [-1, -1, -1,
  -1, 0, 1, 2, 3]}], [{"dtype": "f32", "shape": [1, 2, 4], "data": [-2, -2, -2, -2, 0, 1, 2, 3]}], [{"dtype": "f32",
  "shape": [1, 2, 4], "data": [-3, -3, -3, -3, 0, 1, 2, 3]}]]},
{"name": "V16_all_to_allv_n2", "source": {"repo": "NVIDIA/Fuser", "path":
  "tests/cpp/test_multidevice_alltoallv.cpp", "test": "Alltoallv formula (2 ranks)"}, "op": "all_to_allv", "mode":
  "cross_replica", "num_replicas": 2, "num_partitions": 1, "attributes": {"replica_groups": [[0, 1]], "send_counts":
  [[1, 2], [2, 3]], "channel_id": 0}, "inputs": [[{"dtype": "i64", "shape": [3], "data": [0, 1, 2]}], [{"dtype":
  "i64", "shape": [5], "data": [1000, 1001, 1002, 1003, 1004]}]], "expected": [[{"dtype": "i64", "shape": [3],
  "data": [0, 1000, 1001]}], [{"dtype": "i64", "shape": [5], "data": [1, 2, 1002, 1003, 1004]}]]},
{"name": "V16_all_to_allv_n3", "source": {"repo": "NVIDIA/Fuser", "path":
  "tests/cpp/test_multidevice_alltoallv.cpp", "test": "Alltoallv formula (3 ranks)"}, "op": "all_to_allv", "mode":
  "cross_replica", "num_replicas": 3, "num_partitions": 1, "attributes": {"replica_groups": [[0, 1, 2]],
  "send_counts": [[1, 2, 3], [2, 3, 1], [3, 1, 2]], "channel_id": 0}, "inputs": [[{"dtype": "i64", "shape": [6],
  "data": [0, 1, 2, 3, 4, 5]}], [{"dtype": "i64", "shape": [6], "data": [1000, 1001, 1002, 1003, 1004, 1005]}],
  [{"dtype": "i64", "shape": [6], "data": [2000, 2001, 2002, 2003, 2004, 2005]}]], "expected": [[{"dtype": "i64",
  "shape": [6], "data": [0, 1000, 1001, 2000, 2001, 2002]}], [{"dtype": "i64", "shape": [6], "data": [1, 2, 1002,
  1003, 1004, 2003]}], [{"dtype": "i64", "shape": [6], "data": [3, 4, 5, 1005, 2004, 2005]}]]},
{"name": "V16_all_to_allv_n4", "source": {"repo": "NVIDIA/Fuser", "path":
  "tests/cpp/test_multidevice_alltoallv.cpp", "test": "Alltoallv formula (4 ranks)"}, "op": "all_to_allv", "mode":
  "cross_replica", "num_replicas": 4, "num_partitions": 1, "attributes": {"replica_groups": [[0, 1, 2, 3]],
  "send_counts": [[1, 2, 3, 1], [2, 3, 1, 2], [3, 1, 2, 3], [1, 2, 3, 1]], "channel_id": 0}, "inputs": [[{"dtype":
  "i64", "shape": [7], "data": [0, 1, 2, 3, 4, 5, 6]}], [{"dtype": "i64", "shape": [8], "data": [1000, 1001, 1002,
  1003, 1004, 1005, 1006, 1007]}], [{"dtype": "i64", "shape": [9], "data": [2000, 2001, 2002, 2003, 2004, 2005,
  2006, 2007, 2008]}], [{"dtype": "i64", "shape": [7], "data": [3000, 3001, 3002, 3003, 3004, 3005, 3006]}]],
  "expected": [[{"dtype": "i64", "shape": [7], "data": [0, 1000, 1001, 2000, 2001, 2002, 3000]}], [{"dtype": "i64",
  "shape": [8], "data": [1, 2, 1002, 1003, 1004, 2003, 3001, 3002]}], [{"dtype": "i64", "shape": [9], "data": [3, 4,
  5, 1005, 2004, 2005, 3003, 3004, 3005]}], [{"dtype": "i64", "shape": [7], "data": [6, 1006, 1007, 2006, 2007,
  2008, 3006]}]]},
{"name": "V16_all_to_allv_n8", "source": {"repo": "NVIDIA/Fuser", "path":
  "tests/cpp/test_multidevice_alltoallv.cpp", "test": "Alltoallv formula (8 ranks)"}, "op": "all_to_allv", "mode":
  "cross_replica", "num_replicas": 8, "num_partitions": 1, "attributes": {"replica_groups": [[0, 1, 2, 3, 4, 5, 6,
  7]], "send_counts": [[1, 2, 3, 1, 2, 3, 1, 2], [2, 3, 1, 2, 3, 1, 2, 3], [3, 1, 2, 3, 1, 2, 3, 1], [1, 2, 3, 1, 2,
  3, 1, 2], [2, 3, 1, 2, 3, 1, 2, 3], [3, 1, 2, 3, 1, 2, 3, 1], [1, 2, 3, 1, 2, 3, 1, 2], [2, 3, 1, 2, 3, 1, 2, 3]],
  "channel_id": 0}, "inputs": [[{"dtype": "i64", "shape": [15], "data": [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12,
  13, 14]}], [{"dtype": "i64", "shape": [17], "data": [1000, 1001, 1002, 1003, 1004, 1005, 1006, 1007, 1008, 1009,
  1010, 1011, 1012, 1013, 1014, 1015, 1016]}], [{"dtype": "i64", "shape": [16], "data": [2000, 2001, 2002, 2003,
  2004, 2005, 2006, 2007, 2008, 2009, 2010, 2011, 2012, 2013, 2014, 2015]}], [{"dtype": "i64", "shape": [15],
  "data": [3000, 3001, 3002, 3003, 3004, 3005, 3006, 3007, 3008, 3009, 3010, 3011, 3012, 3013, 3014]}], [{"dtype":
  "i64", "shape": [17], "data": [4000, 4001, 4002, 4003, 4004, 4005, 4006, 4007, 4008, 4009, 4010, 4011, 4012, 4013,
  4014, 4015, 4016]}], [{"dtype": "i64", "shape": [16], "data": [5000, 5001, 5002, 5003, 5004, 5005, 5006, 5007,
  5008, 5009, 5010, 5011, 5012, 5013, 5014, 5015]}], [{"dtype": "i64", "shape": [15], "data": [6000, 6001, 6002,
  6003, 6004, 6005, 6006, 6007, 6008, 6009, 6010, 6011, 6012, 6013, 6014]}], [{"dtype": "i64", "shape": [17],
  "data": [7000, 7001, 7002, 7003, 7004, 7005, 7006, 7007, 7008, 7009, 7010, 7011, 7012, 7013, 7014, 7015, 7016]}]],
  "expected": [[{"dtype": "i64", "shape": [15], "data": [0, 1000, 1001, 2000, 2001, 2002, 3000, 4000, 4001, 5000,
  5001, 5002, 6000, 7000, 7001]}], [{"dtype": "i64", "shape": [17], "data": [1, 2, 1002, 1003, 1004, 2003, 3001,
  3002, 4002, 4003, 4004, 5003, 6001, 6002, 7002, 7003, 7004]}], [{"dtype": "i64", "shape": [16], "data": [3, 4, 5,
  1005, 2004, 2005, 3003, 3004, 3005, 4005, 5004, 5005, 6003, 6004, 6005, 7005]}], [{"dtype": "i64", "shape": [15],
  "data": [6, 1006, 1007, 2006, 2007, 2008, 3006, 4006, 4007, 5006, 5007, 5008, 6006, 7006, 7007]}], [{"dtype":
  "i64", "shape": [17], "data": [7, 8, 1008, 1009, 1010, 2009, 3007, 3008, 4008, 4009, 4010, 5009, 6007, 6008, 7008,
  7009, 7010]}], [{"dtype": "i64", "shape": [16], "data": [9, 10, 11, 1011, 2010, 2011, 3009, 3010, 3011, 4011,
  5010, 5011, 6009, 6010, 6011, 7011]}], [{"dtype": "i64", "shape": [15], "data": [12, 1012, 1013, 2012, 2013, 2014,
  3012, 4012, 4013, 5012, 5013, 5014, 6012, 7012, 7013]}], [{"dtype": "i64", "shape": [17], "data": [13, 14, 1014,
  1015, 1016, 2015, 3013, 3014, 4014, 4015, 4016, 5015, 6013, 6014, 7014, 7015, 7016]}]]},
{"name": "V17_ragged_all_to_all", "source": {"repo": "jax-ml/jax", "path": "tests/ragged_collective_test.py",
  "test": "test_ragged_all_to_all"}, "op": "ragged_all_to_all", "mode": "cross_replica", "num_replicas": 2,
  "num_partitions": 1, "attributes": {"replica_groups": [[0, 1]], "channel_id": 0}, "inputs": [[{"dtype": "i32",
  "shape": [3], "data": [1, 2, 2]}, {"dtype": "i32", "shape": [4], "data": [0, 0, 0, 0]}, {"dtype": "i32", "shape":
  [2], "data": [0, 1]}, {"dtype": "i32", "shape": [2], "data": [1, 2]}, {"dtype": "i32", "shape": [2], "data": [0,
  0]}, {"dtype": "i32", "shape": [2], "data": [1, 1]}], [{"dtype": "i32", "shape": [3], "data": [3, 4, 0]},
  {"dtype": "i32", "shape": [4], "data": [0, 0, 0, 0]}, {"dtype": "i32", "shape": [2], "data": [0, 1]}, {"dtype":
  "i32", "shape": [2], "data": [1, 1]}, {"dtype": "i32", "shape": [2], "data": [1, 2]}, {"dtype": "i32", "shape":
  [2], "data": [2, 1]}]], "expected": [[{"dtype": "i32", "shape": [4], "data": [1, 3, 0, 0]}], [{"dtype": "i32",
  "shape": [4], "data": [2, 2, 4, 0]}]]},
{"name": "V17b_ragged_all_to_all_groups", "source": {"repo": "jax-ml/jax", "path":
  "tests/ragged_collective_test.py", "test": "test_ragged_all_to_all_axis_index_groups"}, "op": "ragged_all_to_all",
  "mode": "cross_replica", "num_replicas": 4, "num_partitions": 1, "attributes": {"replica_groups": [[0, 1], [2,
  3]], "channel_id": 0}, "inputs": [[{"dtype": "i32", "shape": [3], "data": [1, 2, 2]}, {"dtype": "i32", "shape":
  [4], "data": [0, 0, 0, 0]}, {"dtype": "i32", "shape": [2], "data": [0, 1]}, {"dtype": "i32", "shape": [2], "data":
  [1, 2]}, {"dtype": "i32", "shape": [2], "data": [0, 0]}, {"dtype": "i32", "shape": [2], "data": [1, 1]}],
  [{"dtype": "i32", "shape": [3], "data": [3, 4, 0]}, {"dtype": "i32", "shape": [4], "data": [0, 0, 0, 0]},
  {"dtype": "i32", "shape": [2], "data": [0, 1]}, {"dtype": "i32", "shape": [2], "data": [1, 1]}, {"dtype": "i32",
  "shape": [2], "data": [1, 2]}, {"dtype": "i32", "shape": [2], "data": [2, 1]}], [{"dtype": "i32", "shape": [3],
  "data": [10, 20, 20]}, {"dtype": "i32", "shape": [4], "data": [0, 0, 0, 0]}, {"dtype": "i32", "shape": [2],
  "data": [0, 1]}, {"dtype": "i32", "shape": [2], "data": [1, 2]}, {"dtype": "i32", "shape": [2], "data": [0, 0]},
  {"dtype": "i32", "shape": [2], "data": [1, 1]}], [{"dtype": "i32", "shape": [3], "data": [30, 40, 0]}, {"dtype":
  "i32", "shape": [4], "data": [0, 0, 0, 0]}, {"dtype": "i32", "shape": [2], "data": [0, 1]}, {"dtype": "i32",
  "shape": [2], "data": [1, 1]}, {"dtype": "i32", "shape": [2], "data": [1, 2]}, {"dtype": "i32", "shape": [2],
  "data": [2, 1]}]], "expected": [[{"dtype": "i32", "shape": [4], "data": [1, 3, 0, 0]}], [{"dtype": "i32", "shape":
  [4], "data": [2, 2, 4, 0]}], [{"dtype": "i32", "shape": [4], "data": [10, 30, 0, 0]}], [{"dtype": "i32", "shape":
  [4], "data": [20, 20, 40, 0]}]]},
{"name": "V17c_ragged_all_to_all_singleton_groups", "source": {"repo": "jax-ml/jax", "path":
  "tests/ragged_collective_test.py", "test": "test_ragged_all_to_all_degenerate_groups"}, "op": "ragged_all_to_all",
  "mode": "cross_replica", "num_replicas": 2, "num_partitions": 1, "attributes": {"replica_groups": [[0], [1]],
  "channel_id": 0}, "inputs": [[{"dtype": "i32", "shape": [4], "data": [1, 0, 0, 0]}, {"dtype": "i32", "shape": [4],
  "data": [0, 0, 0, 0]}, {"dtype": "i32", "shape": [1], "data": [0]}, {"dtype": "i32", "shape": [1], "data": [1]},
  {"dtype": "i32", "shape": [1], "data": [2]}, {"dtype": "i32", "shape": [1], "data": [1]}], [{"dtype": "i32",
  "shape": [4], "data": [2, 3, 4, 0]}, {"dtype": "i32", "shape": [4], "data": [0, 0, 0, 0]}, {"dtype": "i32",
  "shape": [1], "data": [0]}, {"dtype": "i32", "shape": [1], "data": [3]}, {"dtype": "i32", "shape": [1], "data":
  [1]}, {"dtype": "i32", "shape": [1], "data": [3]}]], "expected": [[{"dtype": "i32", "shape": [4], "data": [0, 0,
  1, 0]}], [{"dtype": "i32", "shape": [4], "data": [0, 2, 3, 4]}]]}
]})json";

}  // namespace axccl::tests
