#include "src/program/stablehlo.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "src/program/kinds.h"
#include "src/program/text.h"
#include "tests/harness/folder.h"
#include "tests/program/stablehlo_cases.h"

namespace axccl::program {
namespace {

// A module of one function with the arguments that the cases use, in either form.
std::string Pretty(const std::string& lines) {
  return "module @test attributes {mhlo.num_partitions = 4 : i32, mhlo.num_replicas = 1 : i32} {\n"
         "  sdy.mesh @mesh = <[\"a\"=2, \"b\"=2]>\n"
         "  func.func public @main(%x: tensor<4x8xf32>, %y: tensor<4x8xf32>, %s: tensor<f32>, %i: tensor<i32>, "
         "%p: tensor<i1>, %n: tensor<4x1xi32>) {\n" +
         lines + "\n    return\n  }\n}\n";
}

std::string Generic(const std::string& lines) {
  return "\"builtin.module\"() <{sym_name = \"test\"}> ({\n"
         "  \"sdy.mesh\"() <{mesh = #sdy.mesh<[\"a\"=2, \"b\"=2]>, sym_name = \"mesh\"}> : () -> ()\n"
         "  \"func.func\"() <{function_type = (tensor<4x8xf32>, tensor<4x8xf32>, tensor<f32>, tensor<i32>, tensor<i1>, "
         "tensor<4x1xi32>) -> (), sym_name = \"main\", sym_visibility = \"public\"}> ({\n"
         "  ^bb0(%x: tensor<4x8xf32>, %y: tensor<4x8xf32>, %s: tensor<f32>, %i: tensor<i32>, %p: tensor<i1>, "
         "%n: tensor<4x1xi32>):\n" +
         lines +
         "\n    \"func.return\"() : () -> ()\n  }) : () -> ()\n"
         "}) {mhlo.num_partitions = 4 : i32, mhlo.num_replicas = 1 : i32} : () -> ()\n";
}

// What the program of the module has besides the arguments above.
std::string Import(const std::string& module) {
  const Result<Program> program = ImportStablehlo(module);
  if (!program.ok()) return std::string(program.status().message());
  const std::string text = Print(program.value());
  const Result<Program> again = Parse(text);
  EXPECT_TRUE(again.ok()) << again.status().message();
  EXPECT_TRUE(again.ok() && again.value() == program.value()) << text;
  const std::string last = "  argument %5 i32[4,1]\n";
  const size_t begin = text.find(last);
  return begin == std::string::npos ? text : text.substr(begin + last.size());
}

void Count(const Function& function, std::set<OpKind>* kinds) {
  for (const Operation& operation : function.operations) {
    kinds->insert(operation.kind);
    for (const Function& region : operation.regions) Count(region, kinds);
  }
}

TEST(StablehloTest, ReadsEveryOperationInBothForms) {
  std::set<OpKind> kinds;
  for (const StablehloCase& one : kStablehloCases) {
    const std::string expected = one.program + std::string("  return\n");
    EXPECT_EQ(Import(Pretty(one.pretty)), expected) << one.pretty;
    EXPECT_EQ(Import(Generic(one.generic)), expected) << one.generic;
    const Result<Program> program = ImportStablehlo(Generic(one.generic));
    if (program.ok()) Count(program.value().parts[0].function, &kinds);
  }
  // All but free, recv and send.
  EXPECT_EQ(kinds.size(), Kinds().size() - 3);
}

// The example in docs/stablehlo.md.
TEST(StablehloTest, TheDocumentedExampleIsTheProgram) {
  const std::string page = harness::Contents(AXCCL_TEST_SOURCE_DIR "/docs/stablehlo.md"), fence = "```\n";
  std::string parts[2];
  size_t end = 0;
  for (std::string& part : parts) {
    const size_t begin = page.find(fence, end) + fence.size();
    end = page.find(fence, begin);
    part = page.substr(begin, end - begin);
    end += fence.size();
  }
  EXPECT_EQ(Import(parts[0]), parts[1]);
}

// Training steps that JAX made.
// As MLIR prints them with locations, before and behind the module, and of every form.
TEST(StablehloTest, LocationsAreIgnored) {
  const std::string head = "module @loc attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 2 : i32} {\n";
  const Result<Program> plain = ImportStablehlo(
      head +
      "  func.func public @main(%arg0: tensor<4xf32> {jax.buffer_donor = true}) -> tensor<4xf32> {\n"
      "    %loc = \"stablehlo.all_reduce\"(%arg0) <{replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>}> ({\n"
      "    ^bb0(%a: tensor<f32>, %b: tensor<f32>):\n"
      "      %1 = stablehlo.add %a, %b : tensor<f32>\n"
      "      stablehlo.return %1 : tensor<f32>\n"
      "    }) : (tensor<4xf32>) -> tensor<4xf32>\n"
      "    return %loc : tensor<4xf32>\n  }\n}\n");
  const Result<Program> located = ImportStablehlo(
      "#loc = loc(unknown)\n#loc1 = loc(\"step.py\":10:8 to :20)\n#loc2 = loc(\"f(\\\"x)\"(#loc1))\n" + head +
      "  func.func public @main(%arg0: tensor<4xf32> {jax.buffer_donor = true} loc(\"weights['up']\"(#loc))) -> "
      "tensor<4xf32> {\n"
      "    %loc = \"stablehlo.all_reduce\"(%arg0) <{replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>}> ({\n"
      "    ^bb0(%a: tensor<f32> loc(unknown), %b: tensor<f32> loc(callsite(\"g\"(#loc1) at \"h\"(#loc2)))):\n"
      "      %1 = stablehlo.add %a, %b : tensor<f32> loc(fused<\"m)\">[#loc1, callsite(#loc2 at #loc3)])\n"
      "      stablehlo.return %1 : tensor<f32> loc(#loc3)\n"
      "    }) : (tensor<4xf32>) -> tensor<4xf32> loc(#loc3)\n"
      "    return %loc : tensor<4xf32> loc(#loc)\n  } loc(#loc)\n} loc(#loc)\n#loc3 = loc(\n  \"late\"(#loc1))\n");
  ASSERT_TRUE(plain.ok()) << plain.status().message();
  ASSERT_TRUE(located.ok()) << located.status().message();
  EXPECT_EQ(located.value(), plain.value());
  for (const char* open : {"loc(", "#loc1 = loc(\"", "#loc1 = ", "#loc1", "#loc = 1"}) {
    EXPECT_FALSE(ImportStablehlo(open).ok()) << open;
    EXPECT_FALSE(ImportStablehlo(open + head).ok()) << open;
  }
}

TEST(StablehloTest, ReadsTheProgramsOfTheVectors) {
  const char* const folder = std::getenv("AXCCL_VECTORS");
  if (folder == nullptr || !std::filesystem::exists(std::string(folder) + "/stablehlo_programs"))
    GTEST_SKIP() << "AXCCL_VECTORS does not name a folder with stablehlo_programs";
  for (const char* const name :
       {"gpipe_scan", "gpt_dt", "gpt_fsdp_tp", "gpt_scan", "mlp_data", "mlp_fsdp", "moe_a2a", "ring_permute"}) {
    const std::string path = std::string(folder) + "/stablehlo_programs/" + name + ".mlir";
    const Result<Program> program = ImportStablehlo(harness::Contents(path));
    ASSERT_TRUE(program.ok()) << path << ": " << program.status().message();
    EXPECT_EQ(program.value().ranks, 4) << name;
    const Result<Program> again = Parse(Print(program.value()));
    EXPECT_TRUE(again.ok() && again.value() == program.value()) << name;
  }
}

TEST(StablehloTest, ReadsElements) {
  const struct {
    const char *constant, *type, *value;
  } kCases[] = {
      {"dense<[[1, 2, 3], [4, 5, -6]]> : tensor<2x3xi8>", "i8[2,3]", "[1,2,3,4,5,-6]"},
      {"dense<[7, 7, 7]> : tensor<3xui16>", "u16[3]", "7"},
      {"dense<> : tensor<0x2xf32>", "f32[0,2]", "[]"},
      {"dense<[]> : tensor<0xf32>", "f32[0]", "[]"},
      {"dense<1.0> : tensor<0xf32>", "f32[0]", "1"},
      {"dense<[true, false]> : tensor<2xi1>", "i1[2]", "[true,false]"},
      {"dense<\"0x0001\"> : tensor<2xi1>", "i1[2]", "[false,true]"},
      {"dense<\"0x0000803F000000C0\"> : tensor<2xf32>", "f32[2]", "[1,-2]"},
      {"dense<\"0x0100\"> : tensor<9xi16>", "i16[9]", "1"},
      {"dense<[0x7F800000, 0xFFC00001]> : tensor<2xf32>", "f32[2]", "[0x7f800000,0xffc00001]"},
      {"dense<1.000000e-01> : tensor<f32>", "f32[]", "0.1"},
      {"dense<1.000000e-01> : tensor<f64>", "f64[]", "0.1"},
      {"dense<-0.000000e+00> : tensor<bf16>", "bf16[]", "-0"},
      {"dense<[1.00390625, 1.01171875, 3.0e38]> : tensor<3xbf16>", "bf16[3]", "[1,1.015625,3.0040553e+38]"},
      {"dense<[6.5504e+04, 6.0e-08, 2.9e-08, 1.00048828125]> : tensor<4xf16>", "f16[4]", "[65504,5.9604645e-08,0,1]"},
      {"dense<18446744073709551615> : tensor<ui64>", "u64[]", "18446744073709551615"},
      {"dense<-9223372036854775808> : tensor<i64>", "i64[]", "-9223372036854775808"},
  };
  for (const auto& one : kCases) {
    EXPECT_EQ(Import(Pretty("    %c = stablehlo.constant " + std::string(one.constant))),
              "  %6 " + std::string(one.type) + " = constant value=" + one.value + "\n  return\n")
        << one.constant;
  }
}

TEST(StablehloTest, ResolvesGroups) {
  const std::string head = "    %0 = \"stablehlo.all_reduce\"(%x) <{", tail = R"(}> ({
    ^bb0(%a: tensor<f32>, %b: tensor<f32>):
      %1 = stablehlo.add %b, %a : tensor<f32>
      stablehlo.return %1 : tensor<f32>
    }) : (tensor<4x8xf32>) -> tensor<4x8xf32>)";
  const std::string channel = "channel_handle = #stablehlo.channel_handle<handle = 3, type = 0>, ";
  const auto module = [&](int replicas, int partitions, const std::string& attributes) {
    return "module attributes {mhlo.num_replicas = " + std::to_string(replicas) +
           " : i32, mhlo.num_partitions = " + std::to_string(partitions) +
           " : i32} {\n sdy.mesh @mesh = <[\"a\"=2, \"b\"=4]>\n sdy.mesh @back = <[\"a\"=2, \"b\"=2], "
           "device_ids=[3, 2, 1, 0]>\n func.func @main(%x: tensor<4x8xf32>) {\n" +
           head + attributes + tail + "\n return\n }\n}\n";
  };
  const auto groups = [&](const std::string& text) {
    const size_t begin = text.find("groups=");
    return begin == std::string::npos ? text : text.substr(begin, text.find('\n', begin) - begin);
  };
  const auto mesh = [](const std::string& name, const std::string& axes) {
    return "replica_groups = #stablehlo.replica_group_mesh_axes<mesh = @" + name + ", axes = [" + axes +
           "]>, use_global_device_ids";
  };
  const std::string a = "#stablehlo.axis_ref<name = \"a\">", b = "#stablehlo.axis_ref<name = \"b\">";
  const struct {
    int replicas, partitions;
    std::string attributes, groups;
  } kCases[] = {
      {2, 2, "replica_groups = dense<[[1, 0]]> : tensor<1x2xi64>", "groups=[[2,0],[3,1]] channel=0"},
      {2, 2, channel + "replica_groups = dense<[[1, 0]]> : tensor<1x2xi64>", "groups=[[2,0,3,1]] channel=3"},
      {2, 2, channel + "replica_groups = dense<[[3, 0], [1, 2]]> : tensor<2x2xi64>, use_global_device_ids",
       "groups=[[3,0],[1,2]] channel=3"},
      {1, 3, channel + "replica_groups = dense<[[0, 1], [2, -1]]> : tensor<2x2xi64>, use_global_device_ids",
       "groups=[[0,1],[2]] channel=3"},
      {3, 1, "replica_groups = dense<> : tensor<0x0xi64>", "groups=[[0,1,2]] channel=0"},
      {1, 8, channel + mesh("mesh", a), "groups=[[0,4],[1,5],[2,6],[3,7]] channel=3"},
      {1, 8, channel + mesh("mesh", b), "groups=[[0,1,2,3],[4,5,6,7]] channel=3"},
      {1, 8, channel + mesh("mesh", b + ", " + a), "groups=[[0,4,1,5,2,6,3,7]] channel=3"},
      {1, 8, channel + mesh("mesh", "#stablehlo.axis_ref<name = \"b\", sub_axis_info = (1)2>"),
       "groups=[[0,2],[1,3],[4,6],[5,7]] channel=3"},
      {1, 4, channel + mesh("back", b), "groups=[[3,2],[1,0]] channel=3"},
  };
  for (const auto& one : kCases)
    EXPECT_EQ(groups(Import(module(one.replicas, one.partitions, one.attributes))), one.groups) << one.attributes;
}

// Without mhlo.num_replicas and mhlo.num_partitions.
TEST(StablehloTest, CountsRanksByIds) {
  const auto ranks = [](const std::string& meshes, const std::string& pairs, const std::string& channel) {
    const std::string text =
        "module {\n" + meshes + "func.func @main(%x: tensor<f32>) {\n%0 = \"stablehlo.collective_permute\"(%x) <{" +
        channel + "source_target_pairs = " + pairs + "}> : (tensor<f32>) -> tensor<f32>\nreturn\n}\n}\n";
    const Result<Program> program = ImportStablehlo(text);
    return program.ok() ? program.value().ranks : -1;
  };
  const std::string channel = "channel_handle = #stablehlo.channel_handle<handle = 1, type = 0>, ";
  EXPECT_EQ(ranks("", "dense<[[0, 4]]> : tensor<1x2xi64>", ""), 5);
  EXPECT_EQ(ranks("", "dense<[[0, 4]]> : tensor<1x2xi64>", channel), 5);
  EXPECT_EQ(ranks("", "dense<0> : tensor<1x2xi64>", channel), 1);
  EXPECT_EQ(ranks("sdy.mesh @m = <[\"a\"=2, \"b\"=4]>\n", "dense<[[0, 4]]> : tensor<1x2xi64>", channel), 8);
  EXPECT_EQ(ranks("sdy.mesh @m = <[\"a\"=2]>\n", "dense<[[0, 4]]> : tensor<1x2xi64>", ""), -1) << "ids of both";
}

TEST(StablehloTest, InlinesCalls) {
  const std::string text = R"(module {
  func.func private @twice(%arg0: tensor<f32>) -> (tensor<f32>, tensor<f32>) {
    %0 = stablehlo.add %arg0, %arg0 : tensor<f32>
    return %0, %arg0 : tensor<f32>, tensor<f32>
  }
  func.func private @unused(%arg0: tensor<i8>) -> tensor<i8> {
    return %arg0 : tensor<i8>
  }
  func.func @main(%arg0: tensor<f32> {jax.buffer_donor = true}, %arg1: tensor<i1> {tf.aliasing_output = 0 : i32})
      -> (tensor<f32> {jax.result_info = "result"}) {
    %0:2 = call @twice(%arg0) : (tensor<f32>) -> (tensor<f32>, tensor<f32>)
    %1 = "stablehlo.if"(%arg1) ({
      %2:2 = func.call @twice(%0#0) : (tensor<f32>) -> (tensor<f32>, tensor<f32>)
      stablehlo.return %2#1 : tensor<f32>
    }, {
      stablehlo.return %0#1 : tensor<f32>
    }) : (tensor<i1>) -> tensor<f32>
    return %1 : tensor<f32>
  }
}
)";
  EXPECT_EQ(Import(text), R"(axccl-program 1
ranks 1
part main on [0]
  argument %0 f32[] donated
  argument %1 i1[] donated
  %2 f32[] = add %0 %0
  %3 f32[] = if %1
  then
    %4 f32[] = add %2 %2
    return %2
  else
    return %0
  return %3
)");
}

// A manual computation in pretty form, in which `operands`, `sharding` and `axes` are as given.
std::string Manual(const std::string& operands, const std::string& sharding, const std::string& axes) {
  return "module attributes {mhlo.num_partitions = 4 : i32} {\n"
         "sdy.mesh @mesh = <[\"d\"=2, \"m\"=2]> {stablehlo.mesh = {axes = [{name = \"d\", size = 2 : i64}]}}\n"
         "func.func @main(%arg0: tensor<16x16xf32> {jax.buffer_donor = true}, %arg1: tensor<f32>) -> "
         "tensor<16x16xf32> {\n"
         "%0 = sdy.manual_computation(" +
         operands + ") in_shardings=[<@mesh, " + sharding +
         ">, <@mesh, [], replicated={\"m\"}>] out_shardings=[<@mesh, [{\"d\", \"m\"}, {}]>] manual_axes={" + axes +
         R"(} (%arg2: tensor<8x8xf32>, %arg3: tensor<f32>) {
      %1 = stablehlo.reshape %arg2 : (tensor<8x8xf32>) -> tensor<4x16xf32>
      sdy.return %1 : tensor<4x16xf32>
    } : (tensor<16x16xf32>, tensor<f32>) -> tensor<16x16xf32>
    return %0 : tensor<16x16xf32>
  }
})";
}

constexpr const char* kGenericManual = R"("builtin.module"() ({
  "sdy.mesh"() <{mesh = #sdy.mesh<["d"=2, "m"=2]>, sym_name = "mesh"}> {stablehlo.mesh = {axes = []}} : () -> ()
  "func.func"() <{arg_attrs = [{jax.buffer_donor = true}, {}], function_type = (tensor<16x16xf32>, tensor<f32>) ->
      tensor<16x16xf32>, sym_name = "main"}> ({
  ^bb0(%arg0: tensor<16x16xf32>, %arg1: tensor<f32>):
    %0 = "sdy.manual_computation"(%arg0, %arg1) <{in_shardings = #sdy.sharding_per_value<[<@mesh, [{"d"}, {"m"}]>,
        <@mesh, [], replicated={"m"}>]>, manual_axes = #sdy<manual_axes{"d", "m"}>,
        out_shardings = #sdy.sharding_per_value<[<@mesh, [{"d", "m"}, {}]>]>}> ({
    ^bb0(%arg2: tensor<8x8xf32>, %arg3: tensor<f32>):
      %1 = "stablehlo.reshape"(%arg2) : (tensor<8x8xf32>) -> tensor<4x16xf32>
      "sdy.return"(%1) : (tensor<4x16xf32>) -> ()
    }) : (tensor<16x16xf32>, tensor<f32>) -> tensor<16x16xf32>
    "func.return"(%0) : (tensor<16x16xf32>) -> ()
  }) : () -> ()
}) {mhlo.num_partitions = 4 : i32} : () -> ()
)";

TEST(StablehloTest, ManualComputationsAreOfShards) {
  const std::string expected = R"(axccl-program 1
ranks 4
part main on [0,1,2,3]
  argument %0 f32[8,8] donated
  argument %1 f32[]
  %2 f32[4,16] = reshape %0
  return %2
)";
  const std::string operands = "%arg0, %arg1", sharding = R"([{"d"}, {"m"}])", axes = R"("d", "m")";
  const std::string right = Manual(operands, sharding, axes);
  EXPECT_EQ(Import(right), expected);
  EXPECT_EQ(Import(kGenericManual), expected);
  const auto replace = [&](const std::string& word, const std::string& by) {
    return std::string(right).replace(right.find(word), word.size(), by);
  };
  const struct {
    std::string text;
    const char* words;
  } kWrong[] = {
      {Manual(operands, sharding, R"("d")"), "line 4 column 155: expected all axes in manual_axes, but 'm' is not"},
      {Manual(operands, R"([{"d"}, {}])", axes),
       "line 4 column 57: expected a sharding that makes f32[8,8] of f32[16,16]"},
      {Manual(operands, R"([{"d"}, {"x"}])", axes), "expected a sharding that makes"},
      {replace("= 4 : i32", "= 8 : i32"), "as many devices in the mesh 'mesh' as ranks, 8"},
      {replace("<[\"d\"=2, \"m\"=2]>", "<[\"d\"=2, \"m\"=2], device_ids=[3, 2, 1, 0]>"),
       "device_ids are not supported"},
      {replace("return %0", "%2 = stablehlo.abs %0 : tensor<16x16xf32>\nreturn %2"),
       "only where it is all that main does"},
      {replace("reshape %arg2", "reshape %arg0"), "defined above, found '%arg0'"},
      {replace("sdy.return", "return"), "'return' is not supported"},
      {replace("(%arg0, %arg1) in_", "(%arg0) in_"), "expected 1 type for the operands"},
  };
  for (const auto& one : kWrong) EXPECT_NE(Import(one.text).find(one.words), std::string::npos) << Import(one.text);
}

// What would take more than the text is refused, before it is made.
TEST(StablehloTest, ProgramsStayInProportionToTheText) {
  std::string text = "module {\nfunc.func @f0(%x: tensor<f32>) -> tensor<f32> {\nreturn %x : tensor<f32>\n}\n";
  for (int i = 1; i <= 40; ++i) {
    const std::string call = " = call @f" + std::to_string(i - 1) + "(%x) : (tensor<f32>) -> tensor<f32>\n";
    text += "func.func @" + (i == 40 ? "main" : "f" + std::to_string(i)) + "(%x: tensor<f32>) -> tensor<f32> {\n%0" +
            call + "%1" + call + "return %1 : tensor<f32>\n}\n";
  }
  EXPECT_NE(Import(text + "}\n").find("the program is too large for its text"), std::string::npos);
  const std::string permute =
      "\"stablehlo.collective_permute\"(%x) <{source_target_pairs = dense<> : tensor<0x2xi64>}> : (tensor<f32>) -> "
      "tensor<f32>\n";
  std::string many;
  for (int i = 0; i < 100; ++i) many += permute;
  EXPECT_NE(Import("module attributes {mhlo.num_replicas = 1048576 : i32} {\nfunc.func @main(%x: tensor<f32>) {\n" +
                   many + "return\n}\n}\n")
                .find("the program is too large for its text"),
            std::string::npos);
}

TEST(StablehloTest, BoundsNesting) {
  const auto nest = [](int regions) {
    std::string begin, end;
    for (int i = 0; i < regions; ++i) {
      begin += "\"stablehlo.if\"(%p) ({\n";
      end += "stablehlo.return\n}, {\nstablehlo.return\n}) : (tensor<i1>) -> ()\n";
    }
    return begin + end;
  };
  EXPECT_EQ(Import(Pretty(nest(16))).find("expected"), std::string::npos);
  EXPECT_NE(Import(Pretty(nest(17))).find("at most 16 regions"), std::string::npos);
  EXPECT_NE(Import(Pretty(nest(100000))).find("at most 16 regions"), std::string::npos);
  EXPECT_NE(Import("module attributes {mhlo.x = " + std::string(100000, '[')).find("at most 16 attributes"),
            std::string::npos);
}

TEST(StablehloTest, RefusesWithLineAndColumn) {
  for (const StablehloError& one : kStablehloErrors) {
    const std::string message = Import(Pretty(one.lines));
    EXPECT_TRUE(message.starts_with("StableHLO text, line " + std::string(one.place))) << one.lines << "\n" << message;
    EXPECT_NE(message.find(one.words), std::string::npos) << one.lines << "\n" << message;
  }
  for (const StablehloError& one : kModuleErrors) {
    const std::string message = Import(one.lines);
    EXPECT_TRUE(message.starts_with("StableHLO text, line " + std::string(one.place))) << one.lines << "\n" << message;
    EXPECT_NE(message.find(one.words), std::string::npos) << one.lines << "\n" << message;
  }
}

// Cut anywhere, a module is refused.
TEST(StablehloTest, RefusesEveryPart) {
  for (const std::string& text : {Pretty(kStablehloCases[0].pretty), Generic(kStablehloCases[0].generic)}) {
    for (size_t size = 0; size + 1 < text.size(); ++size)
      ASSERT_FALSE(ImportStablehlo(text.substr(0, size)).ok()) << text.substr(0, size);
  }
}

}  // namespace
}  // namespace axccl::program
