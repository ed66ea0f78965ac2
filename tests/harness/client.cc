#include "tests/harness/client.h"

#include <cstdlib>
#include <cstring>

#include "tests/harness/gpu.h"
#include "tests/harness/gpu_driver.h"
#include "tests/harness/timing.h"

namespace axccl::harness {

testing::AssertionResult IsSuccess(const char* expression, ncclResult_t result) {
  if (result == ncclSuccess) return testing::AssertionSuccess();
  return testing::AssertionFailure() << expression << " returned " << static_cast<int>(result) << " ("
                                     << ncclGetErrorString(result) << "); last error: " << ncclGetLastError(nullptr);
}

bool ShareUniqueId(RankContext& context, ncclUniqueId* id) {
  constexpr int kBarrier = 15;
  if (context.first_rank() == 0) {
    ncclUniqueId made;
    const ncclResult_t result = ncclGetUniqueId(&made);
    if (result != ncclSuccess) {
      context.Fail(std::string("ncclGetUniqueId: ") + ncclGetLastError(nullptr));
      return false;
    }
    std::memcpy(context.board(), &made, sizeof made);
  }
  if (!context.Barrier(kBarrier)) return false;
  std::memcpy(id, context.board(), sizeof *id);
  return context.Barrier(kBarrier);
}

ncclConfig_t NonBlocking() {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  return config;
}

ncclComm_t BeginInit(const ncclUniqueId& id, int ranks, int rank) {
  ncclConfig_t config = NonBlocking();
  ncclComm_t comm = nullptr;
  const ncclResult_t started = ncclCommInitRankConfig(&comm, ranks, id, rank, &config);
  EXPECT_TRUE(started == ncclInProgress || started == ncclSuccess) << started << ": " << ncclGetLastError(nullptr);
  return comm;
}

ncclResult_t AwaitComm(RankContext& context, ncclComm_t comm) {
  ncclResult_t state = ncclInProgress;
  while (state == ncclInProgress && !context.AnyFailed()) {
    if (const ncclResult_t asked = ncclCommGetAsyncError(comm, &state); asked != ncclSuccess) return asked;
    harness::LookLater();
  }
  return state;
}

void ExpectShape(ncclComm_t comm, int count, int rank) {
  int value = -1;
  ASSERT_OK(ncclCommCount(comm, &value));
  EXPECT_EQ(value, count);
  ASSERT_OK(ncclCommUserRank(comm, &value));
  EXPECT_EQ(value, rank);
}

bool LastErrorHas(const std::string& part) {
  const char* text = ncclGetLastError(nullptr);
  return text != nullptr && std::strstr(text, part.c_str()) != nullptr;
}

void ExpectLastErrorHas(std::initializer_list<const char*> words) {
  for (const char* word : words)
    EXPECT_TRUE(LastErrorHas(word)) << "no \"" << word << "\" in: " << ncclGetLastError(nullptr);
}

void ExpectNoInit(RankContext& context, ncclResult_t expected, std::initializer_list<const char*> words) {
  ncclUniqueId id;
  ASSERT_TRUE(ShareUniqueId(context, &id));
  ncclComm_t comm = nullptr;
  const uint64_t start = NowNs();
  EXPECT_EQ(ncclCommInitRank(&comm, context.nranks(), id, context.rank()), expected);
  EXPECT_LT(NowNs() - start, AllowedNs(1000));
  EXPECT_EQ(comm, nullptr);
  ExpectLastErrorHas(words);
  ASSERT_TRUE(context.Barrier());
}

Clique::~Clique() { Destroy(); }

bool Clique::MakeStreams(int streams_per_rank) {
  bool good = true;
  for (Member& member : members_) {
    if (member.device >= 0 && !OnGpu()) good = good && axcclHostSetDevice(member.device) == ncclSuccess;
    for (int i = 0; i < streams_per_rank && good; ++i) {
      axcclStream_t stream = nullptr;
      const ncclResult_t result = CreateStream(&stream);
      EXPECT_OK(result);
      good = result == ncclSuccess;
      if (good) member.streams.push_back(stream);
    }
  }
  return good;
}

bool Clique::Init(RankContext& context, int streams_per_rank) {
  nranks_ = context.nranks();
  ncclUniqueId id;
  if (!context.Step("init of %d ranks", nranks_) || !ShareUniqueId(context, &id)) return false;
  const int locals = context.local_ranks();
  const int first_in_process = context.first_rank() % (context.layout().threads * locals);
  members_.resize(static_cast<size_t>(locals));
  if (locals == 1 && OnGpu() && std::getenv("AXCCL_TEST_OWN_GPUS") != nullptr) EnterGpu(context.first_rank());
  bool good = locals == 1 || ncclGroupStart() == ncclSuccess;
  for (int i = 0; i < locals && good; ++i) {
    members_[i].rank = context.first_rank() + i;
    // A lone rank uses the device the library gives to its thread, as most programs do.
    if (locals > 1) {
      members_[i].device = first_in_process + i;
      good = axcclHostSetDevice(members_[i].device) == ncclSuccess;
    }
    const ncclResult_t result = ncclCommInitRank(&members_[i].comm, nranks_, id, members_[i].rank);
    EXPECT_OK(result);
    good = good && result == ncclSuccess;
  }
  if (locals > 1) {
    const ncclResult_t result = ncclGroupEnd();
    EXPECT_OK(result);
    good = good && result == ncclSuccess;
  }
  EXPECT_TRUE(good);
  if (!good) members_.clear();
  return good && MakeStreams(streams_per_rank);
}

bool Clique::Adopt(ncclComm_t comm, int streams_per_rank) {
  Member& member = members_.emplace_back();
  member.comm = comm;
  const ncclResult_t count = ncclCommCount(comm, &nranks_);
  const ncclResult_t rank = ncclCommUserRank(comm, &member.rank);
  const ncclResult_t device = ncclCommCuDevice(comm, &member.device);
  EXPECT_OK(count);
  EXPECT_OK(rank);
  EXPECT_OK(device);
  return count == ncclSuccess && rank == ncclSuccess && device == ncclSuccess && MakeStreams(streams_per_rank);
}

bool Clique::Synchronize() {
  bool good = true;
  for (const Member& member : members_) {
    for (const axcclStream_t stream : member.streams) {
      const ncclResult_t result = SynchronizeStream(stream);
      EXPECT_OK(result) << "rank " << member.rank;
      good = good && result == ncclSuccess;
    }
  }
  return good;
}

bool Clique::Destroy() {
  bool good = true;
  for (Member& member : members_) {
    for (const axcclStream_t stream : member.streams) {
      const ncclResult_t result = DestroyStream(stream);
      EXPECT_OK(result);
      good = good && result == ncclSuccess;
    }
    member.streams.clear();
  }
  const bool group = members_.size() > 1;
  if (group) good = ncclGroupStart() == ncclSuccess && good;
  for (Member& member : members_) {
    if (member.comm == nullptr) continue;
    const ncclResult_t result = ncclCommDestroy(member.comm);
    EXPECT_OK(result) << "rank " << member.rank;
    good = good && result == ncclSuccess;
  }
  if (group) good = ncclGroupEnd() == ncclSuccess && good;
  members_.clear();
  return good;
}

void Clique::ForgetComms() {
  for (Member& member : members_) member.comm = nullptr;
}

void Clique::ExpectMismatch(std::initializer_list<const char*> words) {
  EXPECT_EQ(axcclStreamSynchronize(stream()), ncclInvalidUsage) << ncclGetLastError(nullptr);
  ExpectLastErrorHas(words);
  EXPECT_OK(ncclCommAbort(comm()));
  ForgetComms();
}

void RunCliques(const Layout& layout, const std::function<void(RankContext&, Clique&)>& body,
                const RunOptions& options) {
  const auto with_clique = [&](RankContext& context) {
    Clique clique;
    if (clique.Init(context)) body(context, clique);
  };
  RunRanks(layout, with_clique, options);
}

void RunNonBlockingCliques(const Layout& layout, const std::function<void(RankContext&, Clique&)>& body,
                           const RunOptions& options) {
  const auto with_clique = [&](RankContext& context) {
    ncclUniqueId id;
    ASSERT_TRUE(ShareUniqueId(context, &id));
    const ncclComm_t comm = BeginInit(id, context.nranks(), context.rank());
    ASSERT_OK(AwaitComm(context, comm));
    Clique clique;
    if (clique.Adopt(comm)) body(context, clique);
  };
  RunRanks(layout, with_clique, options);
}

}  // namespace axccl::harness
