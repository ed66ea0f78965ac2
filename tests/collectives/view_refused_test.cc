// Calls on views that are refused: wrong arguments, at once and with nothing written; ranks that make different calls,
// within a second. And calls that are right although they look wrong.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include "tests/collectives/owned_view.h"
#include "tests/harness/client.h"
#include "tests/harness/timing.h"

namespace axccl::tests {
namespace {

using harness::AllowedNs;
using harness::Clique;
using harness::Cuda;
using harness::LastErrorHas;
using harness::NowNs;
using harness::RankContext;
using harness::RunRanks;

struct Setting {
  int32_t *in, *out;  // 256 elements each, one behind the other
  ncclComm_t comm;    // of two ranks
  cudaStream_t stream;
  int rank;
};

struct BadCall {
  const char* name;
  std::vector<const char*> words;
  ncclResult_t (*call)(const Setting&);
};

constexpr int64_t kHuge = int64_t{1} << 62;

const BadCall kBadCalls[] = {
    {"DimTooLarge",
     {"axcclAllGather: all_gather_dim is 2, but input has 2 dimensions; it must be in -2..1"},
     [](const Setting& s) {
       return axcclAllGather(1, View(s.in, {2, 4}), View(s.out, {2, 8}), 2, axcclDefaultChannel(s.comm), nullptr,
                             s.stream);
     }},
    {"DimTooSmall",
     {"axcclReduceScatter: scatter_dimension is -3, but input has 2 dimensions"},
     [](const Setting& s) {
       return axcclReduceScatter(1, View(s.in, {2, 4}), View(s.out, {2, 2}), -3, ncclSum, axcclDefaultChannel(s.comm),
                                 nullptr, s.stream);
     }},
    {"ConcatDim",
     {"axcclAllToAll: concat_dimension is 5, but input has 2 dimensions"},
     [](const Setting& s) {
       return axcclAllToAll(1, View(s.in, {2, 4}), View(s.out, {4, 2}), 1, 5, axcclDefaultChannel(s.comm), nullptr,
                            s.stream);
     }},
    {"NoDims",
     {"axcclAllGather: all_gather_dim is 0, but input has no dimensions"},
     [](const Setting& s) {
       return axcclAllGather(1, View(s.in, {}), View(s.out, {}), 0, axcclDefaultChannel(s.comm), nullptr, s.stream);
     }},
    {"NotDivisible",
     {"axcclReduceScatter: input has size 3 along scatter_dimension 1, not a multiple of the group size 2"},
     [](const Setting& s) {
       return axcclReduceScatter(1, View(s.in, {2, 3}), View(s.out, {2, 1}), 1, ncclSum, axcclDefaultChannel(s.comm),
                                 nullptr, s.stream);
     }},
    {"AllToAllNotDivisible",
     {"axcclAllToAll: input has size 5 along split_dimension 0, not a multiple of the group size 2"},
     [](const Setting& s) {
       return axcclAllToAll(1, View(s.in, {5, 4}), View(s.out, {2, 8}), 0, 1, axcclDefaultChannel(s.comm), nullptr,
                            s.stream);
     }},
    {"OutputSize",
     {"axcclAllGather: output has size 5 along dimension 1, expected 8"},
     [](const Setting& s) {
       return axcclAllGather(1, View(s.in, {2, 4}), View(s.out, {2, 5}), 1, axcclDefaultChannel(s.comm), nullptr,
                             s.stream);
     }},
    {"OutputDims",
     {"axcclAllReduce: output has 1 dimensions (sizes [8]), input has 2 (sizes [2, 4])"},
     [](const Setting& s) {
       return axcclAllReduce(1, View(s.in, {2, 4}), View(s.out, {8}), ncclSum, axcclDefaultChannel(s.comm), nullptr,
                             s.stream);
     }},
    {"Datatypes",
     {"axcclAllReduce: output has datatype float, input has int32"},
     [](const Setting& s) {
       return axcclAllReduce(1, View(s.in, {4}), View(s.out, {4}, {}, ncclFloat32), ncclSum,
                             axcclDefaultChannel(s.comm), nullptr, s.stream);
     }},
    {"Datatype",
     {"axcclAllReduce: input has datatype 77; pass one of ncclDataType_t"},
     [](const Setting& s) {
       return axcclAllReduce(1, View(s.in, {4}, {}, static_cast<ncclDataType_t>(77)), View(s.out, {4}), ncclSum,
                             axcclDefaultChannel(s.comm), nullptr, s.stream);
     }},
    {"RepeatedOutput",
     {"axcclAllReduce: elements of output overlap", "strides [0, 1]"},
     [](const Setting& s) {
       return axcclAllReduce(1, View(s.in, {2, 4}), View(s.out, {2, 4}, {0, 1}), ncclSum, axcclDefaultChannel(s.comm),
                             nullptr, s.stream);
     }},
    {"InterlacedOutput",
     {"axcclAllReduce: elements of output overlap", "sizes [3, 4] and strides [3, 2]"},
     [](const Setting& s) {
       return axcclAllReduce(1, View(s.in, {3, 4}), View(s.out, {3, 4}, {3, 2}), ncclSum, axcclDefaultChannel(s.comm),
                             nullptr, s.stream);
     }},
    {"PartlyInPlace",
     {"axcclAllReduce: input and output overlap and are not in place"},
     [](const Setting& s) {
       return axcclAllReduce(1, View(s.out, {4}), View(s.out + 1, {4}), ncclSum, axcclDefaultChannel(s.comm), nullptr,
                             s.stream);
     }},
    {"TransposedInPlace",
     {"axcclAllReduce: input and output overlap and are not in place", "the same address and strides"},
     [](const Setting& s) {
       return axcclAllReduce(1, View(s.out, {4, 4}), View(s.out, {4, 4}, {1, 4}), ncclSum, axcclDefaultChannel(s.comm),
                             nullptr, s.stream);
     }},
    {"WrongPartInPlace",
     {"axcclAllGather: input and output overlap and are not in place"},
     [](const Setting& s) {
       return axcclAllGather(1, View(s.out + (s.rank == 0 ? 4 : 0), {4}), View(s.out, {8}), 0,
                             axcclDefaultChannel(s.comm), nullptr, s.stream);
     }},
    {"AllToAllInPlace",
     {"axcclAllToAll: input", "overlap; the call cannot run in place"},
     [](const Setting& s) {
       return axcclAllToAll(1, View(s.out, {4}), View(s.out, {4}), 0, 0, axcclDefaultChannel(s.comm), nullptr,
                            s.stream);
     }},
    {"RepeatedPartInPlace",
     {"axcclReduceScatter: block ", "of input and output overlap"},
     [](const Setting& s) {
       return axcclReduceScatter(1, View(s.out, {2, 4}, {0, 1}), View(s.out, {1, 4}), 0, ncclSum,
                                 axcclDefaultChannel(s.comm), nullptr, s.stream);
     }},
    {"NoData",
     {"axcclAllReduce: input of sizes [4] has no data"},
     [](const Setting& s) {
       return axcclAllReduce(1, View(nullptr, {4}), View(s.out, {4}), ncclSum, axcclDefaultChannel(s.comm), nullptr,
                             s.stream);
     }},
    {"NoSizes",
     {"axcclAllReduce: output has 1 dimensions and no sizes"},
     [](const Setting& s) {
       View out(s.out, {4});
       out.view.sizes = nullptr;
       return axcclAllReduce(1, View(s.in, {4}), out, ncclSum, axcclDefaultChannel(s.comm), nullptr, s.stream);
     }},
    {"TooManyDims",
     {"axcclAllReduce: input has 9 dimensions; views have 0 to 8"},
     [](const Setting& s) {
       return axcclAllReduce(1, View(s.in, std::vector<int64_t>(9, 1)), View(s.out, {1}), ncclSum,
                             axcclDefaultChannel(s.comm), nullptr, s.stream);
     }},
    {"NegativeDims",
     {"axcclAllReduce: input has -1 dimensions"},
     [](const Setting& s) {
       View in(s.in, {4});
       in.view.num_dims = -1;
       return axcclAllReduce(1, in, View(s.out, {4}), ncclSum, axcclDefaultChannel(s.comm), nullptr, s.stream);
     }},
    {"NegativeSize",
     {"axcclAllReduce: input has size -4 along dimension 0"},
     [](const Setting& s) {
       return axcclAllReduce(1, View(s.in, {-4}), View(s.out, {4}), ncclSum, axcclDefaultChannel(s.comm), nullptr,
                             s.stream);
     }},
    {"ExtentTooLarge",
     {"axcclAllReduce: input with sizes [4], strides", "does not fit into 2^63 - 1 bytes"},
     [](const Setting& s) {
       return axcclAllReduce(1, View(s.in, {4}, {kHuge}), View(s.out, {4}), ncclSum, axcclDefaultChannel(s.comm),
                             nullptr, s.stream);
     }},
    {"SizesTooLarge",
     {"axcclAllReduce: input with sizes [4611686018427387904, 4]", "does not fit into 2^63 - 1 bytes"},
     [](const Setting& s) {
       return axcclAllReduce(1, View(s.in, {kHuge, 4}), View(s.out, {4}), ncclSum, axcclDefaultChannel(s.comm), nullptr,
                             s.stream);
     }},
    {"AddressSpace",
     {"axcclAllReduce: input with sizes [4] and strides", "leaves the address space"},
     [](const Setting& s) {
       return axcclAllReduce(1, View(s.in, {4}, {-(int64_t{1} << 58)}), View(s.out, {4}), ncclSum,
                             axcclDefaultChannel(s.comm), nullptr, s.stream);
     }},
    {"TooMuch",
     {"axcclReduce: blocks of sizes [288230376151711744]: more bytes than can be addressed on 2 ranks"},
     [](const Setting& s) {
       return axcclReduce(1, View(s.in, {int64_t{1} << 58}, {0}), nullptr, ncclSum, 1 - s.rank,
                          axcclDefaultChannel(s.comm), nullptr, s.stream);
     }},
    {"MissingInput",
     {"axcclAllGather: the input is missing (a null pointer)"},
     [](const Setting& s) {
       return axcclAllGather(1, nullptr, View(s.out, {4}), 0, axcclDefaultChannel(s.comm), nullptr, s.stream);
     }},
    {"MissingInputOfRoot",
     {"axcclBroadcast: the input is missing (a null pointer); rank "},
     [](const Setting& s) {
       return axcclBroadcast(1, nullptr, View(s.out, {4}), s.rank, axcclDefaultChannel(s.comm), nullptr, s.stream);
     }},
    {"MissingOutputOfRoot",
     {"axcclGather: the output is missing"},
     [](const Setting& s) {
       return axcclGather(1, View(s.in, {4}), nullptr, 0, s.rank, axcclDefaultChannel(s.comm), nullptr, s.stream);
     }},
    {"Root",
     {"axcclScatter: argument root is 2; pass a rank of the channel's group (0..1)"},
     [](const Setting& s) {
       return axcclScatter(1, nullptr, View(s.out, {4}), 0, 2, axcclDefaultChannel(s.comm), nullptr, s.stream);
     }},
    {"Operator",
     {"axcclReduce: argument op is 99"},
     [](const Setting& s) {
       return axcclReduce(1, View(s.in, {4}), View(s.out, {4}), static_cast<ncclRedOp_t>(99), 0,
                          axcclDefaultChannel(s.comm), nullptr, s.stream);
     }},
    {"NotInitialised",
     {"axcclAllReduce: input is not initialised (its size is 0); start from AXCCL_VIEW_INITIALIZER"},
     [](const Setting& s) {
       const axcclView_t none = {};
       return axcclAllReduce(1, &none, View(s.out, {4}), ncclSum, axcclDefaultChannel(s.comm), nullptr, s.stream);
     }},
    {"OfANewerHeader",
     {"axcclAllReduce: input has size 1000, and this library knows ",
      "; start from AXCCL_VIEW_INITIALIZER, and use a library as new as the header"},
     [](const Setting& s) {
       axcclView_t newer = AXCCL_VIEW_INITIALIZER;
       newer.size = 1000;
       return axcclAllReduce(1, &newer, View(s.out, {4}), ncclSum, axcclDefaultChannel(s.comm), nullptr, s.stream);
     }},
    {"CountOfOperands",
     {"axcclAllReduce: argument count is 0; pass the number of operands"},
     [](const Setting& s) {
       return axcclAllReduce(0, View(s.in, {4}), View(s.out, {4}), ncclSum, axcclDefaultChannel(s.comm), nullptr,
                             s.stream);
     }},
    {"Options",
     {"axcclAllReduce: the options have size 3, and this library knows"},
     [](const Setting& s) {
       axcclOptions_t options = AXCCL_OPTIONS_INITIALIZER;
       options.size = 3;
       return axcclAllReduce(1, View(s.in, {4}), View(s.out, {4}), ncclSum, axcclDefaultChannel(s.comm), &options,
                             s.stream);
     }},
    {"Flags",
     {"axcclAllReduce: the options have unknown flags 0x80000000"},
     [](const Setting& s) {
       axcclOptions_t options = AXCCL_OPTIONS_INITIALIZER;
       options.flags = 0x80000000u;
       return axcclAllReduce(1, View(s.in, {4}), View(s.out, {4}), ncclSum, axcclDefaultChannel(s.comm), &options,
                             s.stream);
     }},
    {"ScaleOfIntegers",
     {"axcclAllReduce: the options have scale 0.5, which goes with ncclSum of floats", "blocks [4] int32"},
     [](const Setting& s) {
       axcclOptions_t options = AXCCL_OPTIONS_INITIALIZER;
       options.scale = 0.5;
       return axcclAllReduce(1, View(s.in, {4}), View(s.out, {4}), ncclSum, axcclDefaultChannel(s.comm), &options,
                             s.stream);
     }},
    {"ScaleOfAverage",
     {"axcclReduceScatter: the options have scale -2, which goes with ncclSum of floats", "along dimension 0 avg"},
     [](const Setting& s) {
       axcclOptions_t options = AXCCL_OPTIONS_INITIALIZER;
       options.scale = -2;
       return axcclReduceScatter(1, View(s.in, {4}, {}, ncclFloat32), View(s.out, {2}, {}, ncclFloat32), 0, ncclAvg,
                                 axcclDefaultChannel(s.comm), &options, s.stream);
     }},
    {"ScaleOfNoNumber",
     {"axcclAllReduce: the options have scale NaN; pass a number"},
     [](const Setting& s) {
       axcclOptions_t options = AXCCL_OPTIONS_INITIALIZER;
       options.scale = std::numeric_limits<double>::quiet_NaN();
       return axcclAllReduce(1, View(s.in, {4}, {}, ncclFloat32), View(s.out, {4}, {}, ncclFloat32), ncclSum,
                             axcclDefaultChannel(s.comm), &options, s.stream);
     }},
    {"ScaleOfNoReduction",
     {"axcclAllGather: the options have scale 0.5, and the call reduces nothing; pass 0"},
     [](const Setting& s) {
       axcclOptions_t options = AXCCL_OPTIONS_INITIALIZER;
       options.scale = 0.5;
       return axcclAllGather(1, View(s.in, {4}), View(s.out, {8}), 0, axcclDefaultChannel(s.comm), &options, s.stream);
     }},
    {"ShapeInList",
     {"axcclAllGather: output 1 has size 9 along dimension 0, expected 8 = 4 of input 1 x group size 2"},
     [](const Setting& s) {
       const View a(s.in, {4}), b(s.in + 4, {4}), x(s.out, {8}), y(s.out + 8, {9});
       const axcclView_t in[2] = {a.view, b.view}, out[2] = {x.view, y.view};
       return axcclAllGather(2, in, out, 0, axcclDefaultChannel(s.comm), nullptr, s.stream);
     }},
    {"OutputsOfListOverlap",
     {"axcclAllGather: output 0", "and output 1", "overlap; give each its own memory"},
     [](const Setting& s) {
       const View a(s.in, {4}), b(s.in + 4, {4}), x(s.out, {8}), y(s.out + 7, {8});
       const axcclView_t in[2] = {a.view, b.view}, out[2] = {x.view, y.view};
       return axcclAllGather(2, in, out, 0, axcclDefaultChannel(s.comm), nullptr, s.stream);
     }},
    {"OutputOverInputOfAnother",
     {"axcclAllReduce: output 0", "and input 1", "overlap; give each its own memory"},
     [](const Setting& s) {
       const View a(s.in, {4}), b(s.in + 4, {4}), x(s.in + 7, {4}), y(s.out, {4});
       const axcclView_t in[2] = {a.view, b.view}, out[2] = {x.view, y.view};
       return axcclAllReduce(2, in, out, ncclSum, axcclDefaultChannel(s.comm), nullptr, s.stream);
     }},
    {"TypesOfReducedList",
     {"axcclAllReduce: operand 1 has datatype float, operand 0 has int32"},
     [](const Setting& s) {
       const View a(s.in, {4}), b(s.in + 4, {4}, {}, ncclFloat32), x(s.out, {4}), y(s.out + 4, {4}, {}, ncclFloat32);
       const axcclView_t in[2] = {a.view, b.view}, out[2] = {x.view, y.view};
       return axcclAllReduce(2, in, out, ncclSum, axcclDefaultChannel(s.comm), nullptr, s.stream);
     }},
    {"OpaqueListOfEightDims",
     {"axcclAllGather: operand 0 of a list has elements of 3 bytes and 8 dimensions; with such elements it may have",
      "at most 7"},
     [](const Setting& s) {
       const std::vector<int64_t> ones(8, 1), two = {2, 1, 1, 1, 1, 1, 1, 1};
       const View a(s.in, ones, {}, axcclBits(3)), b(s.in + 4, ones, {}, axcclBits(3));
       const View x(s.out, two, {}, axcclBits(3)), y(s.out + 4, two, {}, axcclBits(3));
       const axcclView_t in[2] = {a.view, b.view}, out[2] = {x.view, y.view};
       return axcclAllGather(2, in, out, 0, axcclDefaultChannel(s.comm), nullptr, s.stream);
     }},
    {"OpaqueListReduced",
     {"axcclAllReduce: operand 0 of a list has elements of 3 bytes, which are reduced one operand a call only"},
     [](const Setting& s) {
       const View a(s.in, {4}, {}, axcclBits(3)), b(s.in + 4, {4}, {}, axcclBits(3));
       const View x(s.out, {4}, {}, axcclBits(3)), y(s.out + 4, {4}, {}, axcclBits(3));
       const axcclView_t in[2] = {a.view, b.view}, out[2] = {x.view, y.view};
       const auto keep = [](void*, const void*, size_t, void*) {};
       ncclRedOp_t op = ncclSum;
       if (axcclRedOpCreateCallback(&op, keep, nullptr, axcclBits(3), s.comm) != ncclSuccess) return ncclInternalError;
       const ncclResult_t result = axcclAllReduce(2, in, out, op, axcclDefaultChannel(s.comm), nullptr, s.stream);
       (void)ncclRedOpDestroy(op, s.comm);
       return result;
     }},
    {"Communicator",
     {"axcclAllReduce: argument channel is NULL"},
     [](const Setting& s) {
       return axcclAllReduce(1, View(s.in, {4}), View(s.out, {4}), ncclSum, nullptr, nullptr, s.stream);
     }},
    {"Stream",
     {"axcclAllReduce: argument stream", "is not a live host stream"},
     [](const Setting& s) {
       return axcclAllReduce(1, View(s.in, {4}), View(s.out, {4}), ncclSum, axcclDefaultChannel(s.comm), nullptr,
                             reinterpret_cast<cudaStream_t>(s.in));
     }},
};

void ExpectRefused(const BadCall& bad, const Setting& setting, std::vector<int32_t>* memory) {
  std::iota(memory->begin(), memory->end(), 1);
  const std::vector<int32_t> before = *memory;
  EXPECT_EQ(bad.call(setting), ncclInvalidArgument) << bad.name;
  for (const char* words : bad.words)
    EXPECT_TRUE(LastErrorHas(words)) << bad.name << ": no \"" << words << "\" in: " << ncclGetLastError(nullptr);
  EXPECT_OK(axcclStreamSynchronize(axcclStreamFromCuda(setting.stream)));
  EXPECT_EQ(*memory, before) << bad.name;
  // In a group, the group fails as well.
  EXPECT_OK(ncclGroupStart());
  EXPECT_EQ(bad.call(setting), ncclInvalidArgument) << bad.name;
  EXPECT_EQ(ncclGroupEnd(), ncclInvalidArgument) << bad.name;
}

TEST(ViewRefused, WrongArgumentsAreNamedAndNothingIsWritten) {
  RunRanks(harness::Processes(2), [](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    std::vector<int32_t> memory(512);
    const Setting setting{memory.data(), memory.data() + 256, clique.comm(), Cuda(clique.stream()), context.rank()};
    for (const BadCall& bad : kBadCalls) {
      ASSERT_TRUE(context.Step("%s", bad.name));
      ExpectRefused(bad, setting, &memory);
    }
    // The communicator still works.
    const View in(setting.in, {2, 2}), out(setting.out, {2, 4});
    ASSERT_OK(axcclAllGather(1, in, out, -1, axcclDefaultChannel(clique.comm()), nullptr, setting.stream));
    ASSERT_TRUE(clique.Synchronize());
  });
}

// ---- ranks that make different calls ----

struct Mismatch {
  const char* name;
  std::vector<const char*> words;
  ncclResult_t (*call)(const Setting&);
};

const Mismatch kMismatches[] = {
    {"Dim",
     {"AllGather of blocks [4, 4] int32 concatenated along dimension 0",
      "AllGather of blocks [4, 4] int32 concatenated along dimension 1"},
     [](const Setting& s) {
       if (s.rank == 0)
         return axcclAllGather(1, View(s.in, {4, 4}), View(s.out, {8, 4}), 0, axcclDefaultChannel(s.comm), nullptr,
                               s.stream);
       return axcclAllGather(1, View(s.in, {4, 4}), View(s.out, {4, 8}), 1, axcclDefaultChannel(s.comm), nullptr,
                             s.stream);
     }},
    {"Shape",
     {"AllReduce of blocks [2, 8] int32 sum", "AllReduce of blocks [8, 2] int32 sum"},
     [](const Setting& s) {
       const std::vector<int64_t> sizes = s.rank == 0 ? std::vector<int64_t>{2, 8} : std::vector<int64_t>{8, 2};
       return axcclAllReduce(1, View(s.in, sizes), View(s.out, sizes), ncclSum, axcclDefaultChannel(s.comm), nullptr,
                             s.stream);
     }},
    {"Count",
     {"ReduceScatter of blocks [4] int32 split along dimension 0 sum",
      "ReduceScatter of blocks [5] int32 split along dimension 0 sum"},
     [](const Setting& s) {
       return axcclReduceScatter(1, View(s.in, {8 + 2 * s.rank}), View(s.out, {4 + s.rank}), 0, ncclSum,
                                 axcclDefaultChannel(s.comm), nullptr, s.stream);
     }},
    {"LaterOperand",
     {"AllGather of 2 operands, first of blocks [4] int32 concatenated along dimension 0",
      ", and later operands differ"},
     [](const Setting& s) {
       const View a(s.in, {4}), b(s.in + 4, {4 + s.rank}), x(s.out, {8}), y(s.out + 8, {8 + 2 * s.rank});
       const axcclView_t in[2] = {a.view, b.view}, out[2] = {x.view, y.view};
       return axcclAllGather(2, in, out, 0, axcclDefaultChannel(s.comm), nullptr, s.stream);
     }},
    {"NumberOfOperands",
     {"AllGather of blocks [4] int32", "AllGather of 2 operands, first of blocks [4] int32"},
     [](const Setting& s) {
       const View a(s.in, {4}), b(s.in + 4, {4}), x(s.out, {8}), y(s.out + 8, {8});
       const axcclView_t in[2] = {a.view, b.view}, out[2] = {x.view, y.view};
       return axcclAllGather(1 + s.rank, in, out, 0, axcclDefaultChannel(s.comm), nullptr, s.stream);
     }},
    {"NcclCall",
     {"AllReduce count 16 int32 sum", "AllReduce of blocks [16] int32 sum"},
     [](const Setting& s) {
       if (s.rank == 0) return ncclAllReduce(s.in, s.out, 16, ncclInt32, ncclSum, s.comm, s.stream);
       return axcclAllReduce(1, View(s.in, {16}), View(s.out, {16}), ncclSum, axcclDefaultChannel(s.comm), nullptr,
                             s.stream);
     }},
};

TEST(ViewRefused, DisagreementNamesBothCalls) {
  for (const bool mem_alloc : {false, true}) {
    for (const Mismatch& mismatch : kMismatches) {
      RunRanks(harness::Processes(2), [&](RankContext& context) {
        Clique clique;
        ASSERT_TRUE(clique.Init(context));
        std::vector<int32_t> memory(512);
        void* shared = nullptr;
        if (mem_alloc) {
          ASSERT_OK(ncclMemAlloc(&shared, 2048));
        }
        auto* const data = mem_alloc ? static_cast<int32_t*>(shared) : memory.data();
        const Setting setting{data, data + 256, clique.comm(), Cuda(clique.stream()), context.rank()};
        ASSERT_TRUE(context.Step("%s", mismatch.name));
        ASSERT_TRUE(context.Barrier());
        const uint64_t start = NowNs();
        (void)mismatch.call(setting);
        EXPECT_EQ(axcclStreamSynchronize(clique.stream()), ncclInvalidUsage) << ncclGetLastError(nullptr);
        EXPECT_LT(NowNs() - start, AllowedNs(1000));
        for (const char* words : mismatch.words)
          EXPECT_TRUE(LastErrorHas(words)) << "no \"" << words << "\" in: " << ncclGetLastError(nullptr);
        EXPECT_OK(ncclCommAbort(clique.comm()));
        clique.ForgetComms();
        if (mem_alloc) {
          EXPECT_OK(ncclMemFree(shared));
        }
      });
    }
  }
}

// ---- calls that are right ----

TEST(ViewAccepted, NonBlockingCommunicator) {
  RunRanks(harness::Threads(2), [](RankContext& context) {
    ncclUniqueId id;
    ASSERT_TRUE(harness::ShareUniqueId(context, &id));
    const ncclComm_t comm = harness::BeginInit(id, 2, context.rank());
    ASSERT_NE(comm, nullptr);
    ncclResult_t state = ncclInProgress;
    while (state == ncclInProgress) ASSERT_OK(ncclCommGetAsyncError(comm, &state));
    ASSERT_OK(state);
    Clique clique;
    ASSERT_TRUE(clique.Adopt(comm));
    // [1] of each rank along a new middle dimension: {0, 10}, {1, 11} -> [2, 2].
    int32_t in[2] = {context.rank(), 10 + context.rank()}, out[4] = {};
    const View from(in, {2, 1}), to(out, {2, 2});
    ASSERT_OK(axcclAllGather(1, from, to, 1, axcclDefaultChannel(comm), nullptr, Cuda(clique.stream())));
    ASSERT_TRUE(clique.Synchronize());
    const int32_t expected[4] = {0, 1, 10, 11};
    EXPECT_EQ(std::memcmp(out, expected, sizeof(out)), 0);
    ASSERT_TRUE(context.Barrier());
  });
}

// The example of the header: an output whose dimensions are in the other order.
TEST(ViewAccepted, ColumnMajorOutput) {
  RunRanks(harness::Processes(2), [](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    int32_t in[4] = {1, 2, 3, 4}, out[4] = {};
    for (int32_t& x : in) x *= context.rank() == 0 ? 1 : 10;
    const View from(in, {2, 2}), to(out, {2, 2}, {1, 2});
    ASSERT_OK(axcclAllReduce(1, from, to, ncclSum, axcclDefaultChannel(clique.comm()), nullptr, Cuda(clique.stream())));
    ASSERT_TRUE(clique.Synchronize());
    const int32_t expected[4] = {11, 33, 22, 44};
    EXPECT_EQ(std::memcmp(out, expected, sizeof(out)), 0);
  });
}

}  // namespace
}  // namespace axccl::tests
