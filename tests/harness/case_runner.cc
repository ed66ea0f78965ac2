#include "tests/harness/case_runner.h"

#include <algorithm>
#include <cstring>

#include "tests/harness/element.h"

namespace axccl::harness {
namespace {

constexpr size_t kMostIgnored = 4096;  // bytes of a buffer that the call does not use

bool Decide(Choice choice, Random* random) {
  if (choice == Choice::kRandom) return random->OneIn(2);
  return choice == Choice::kYes;
}

// The part of the send buffer that an in-place call overwrites, in elements.
void OverwrittenRange(const Case& c, int nranks, int rank, size_t* begin, size_t* end) {
  *begin = *end = 0;
  if (!Folds(c.call) || RecvElements(c, nranks, rank) == 0) return;
  *begin = InPlaceOffset(c, nranks, rank);
  *end = *begin + c.count;
}

}  // namespace

ncclRedOp_t BuiltinOp(Fold fold) {
  constexpr ncclRedOp_t kOps[kNumFolds] = {ncclSum,  ncclProd, ncclMax,  ncclMin,         ncclAvg,       ncclSum,
                                           axcclAnd, axcclOr,  axcclXor, axcclLogicalAnd, axcclLogicalOr};
  return kOps[static_cast<int>(fold)];
}

ncclResult_t Launch(const Case& c, const void* send, void* recv, ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  switch (c.call) {
    case Call::kAllReduce:
      return ncclAllReduce(send, recv, c.count, c.type, op, comm, stream);
    case Call::kReduce:
      return ncclReduce(send, recv, c.count, c.type, op, c.root, comm, stream);
    case Call::kReduceScatter:
      return ncclReduceScatter(send, recv, c.count, c.type, op, comm, stream);
    case Call::kBroadcast:
      return ncclBroadcast(send, recv, c.count, c.type, c.root, comm, stream);
    case Call::kBcast:
      return ncclBcast(recv, c.count, c.type, c.root, comm, stream);
    case Call::kAllGather:
      return ncclAllGather(send, recv, c.count, c.type, comm, stream);
    case Call::kAllToAll:
      return ncclAlltoAll(send, recv, c.count, c.type, comm, stream);
    case Call::kGather:
      return ncclGather(send, recv, c.count, c.type, c.root, comm, stream);
    default:
      return ncclScatter(send, recv, c.count, c.type, c.root, comm, stream);
  }
}

CaseRunner::CaseRunner(RankContext& context, Clique& clique, size_t arena_bytes) : context_(context), clique_(clique) {
  for (int i = 0; i < clique.size(); ++i) {
    MemberArenas& arenas = arenas_.emplace_back();
    for (const Memory memory : {Memory::kMemAlloc, Memory::kMalloc}) {
      arenas.by_memory[static_cast<int>(memory)] = GuardedArena::Create(memory, arena_bytes);
      good_ = good_ && arenas.by_memory[static_cast<int>(memory)] != nullptr;
    }
  }
}

CaseRunner::~CaseRunner() {
  if (good_ && parts_.empty()) return;
  // Operations that a failed test leaves running still use the buffers, so these stay until the process ends.
  for (MemberArenas& arenas : arenas_) {
    for (auto& arena : arenas.by_memory) static_cast<void>(arena.release());
  }
}

bool CaseRunner::Fits(const Case& c) const {
  const int n = clique_.nranks();
  const size_t size = TypeBytes(c.type);
  for (size_t i = 0; i < arenas_.size(); ++i) {
    const int rank = clique_.rank(static_cast<int>(i));
    const size_t need = GuardedArena::Need(SendElements(c, n, rank) * size) +
                        GuardedArena::Need(RecvElements(c, n, rank) * size) + GuardedArena::Need(kMostIgnored) +
                        GuardedArena::Need(size);
    for (const auto& arena : arenas_[i].by_memory) {
      if (arena->Left() < need) return false;
    }
  }
  return true;
}

// Whether there is room, if necessary after all earlier cases have ended.
bool CaseRunner::MakeRoom(const Case& c) {
  if (Fits(c)) return true;
  if (!Finish()) return false;
  good_ = Fits(c);
  EXPECT_TRUE(good_) << "the arenas of the test are too small for " << c.Text();
  return good_;
}

void CaseRunner::PlaceInPlace(Part* part, size_t misalignment) {
  const Case& c = part->c;
  const int n = clique_.nranks();
  const int rank = clique_.rank(part->member);
  const size_t size = TypeBytes(c.type);
  const size_t send = SendElements(c, n, rank);
  const size_t recv = RecvElements(c, n, rank);
  char* whole = static_cast<char*>(part->arena->Take(std::max(send, recv) * size, misalignment));
  const size_t offset = InPlaceOffset(c, n, rank) * size;
  part->send = whole + (recv > send ? offset : 0);
  part->recv = whole + (send > recv ? offset : 0);
}

void CaseRunner::PlaceIgnored(Part* part, Random* random) {
  const int n = clique_.nranks();
  const int rank = clique_.rank(part->member);
  const bool no_send = SendElements(part->c, n, rank) == 0;
  void** side = no_send ? &part->send : &part->recv;
  void* other = no_send ? part->recv : part->send;
  switch (random->Below(3)) {
    case 0:
      *side = nullptr;
      return;
    case 1:
      *side = other;  // nccl-tests passes this for an in-place run
      return;
    default:
      part->ignored_bytes = std::min<size_t>(part->c.count * TypeBytes(part->c.type), kMostIgnored);
      part->ignored = part->arena->Take(part->ignored_bytes, 0);
      *side = part->ignored;
  }
}

CaseRunner::Part CaseRunner::Prepare(const Case& c, const Style& style, int member) {
  const int n = clique_.nranks();
  const int rank = clique_.rank(member);
  Random random(Scramble(c.seed, 0xb0ffe5, static_cast<uint64_t>(rank)));
  Part part;
  part.c = c;
  part.member = member;
  const Memory memory = Decide(style.mem_alloc, &random) ? Memory::kMemAlloc : Memory::kMalloc;
  part.arena = arenas_[static_cast<size_t>(member)].by_memory[static_cast<int>(memory)].get();
  const size_t size = TypeBytes(c.type);
  const size_t misalignment = Decide(style.misaligned, &random) ? random.Below(64 / size) * size : 0;
  const size_t send = SendElements(c, n, rank);
  const size_t recv = RecvElements(c, n, rank);
  const bool both = send != 0 && recv != 0;
  part.in_place = both && HasInPlace(c.call) && (c.call == Call::kBcast || Decide(style.in_place, &random));
  if (part.in_place) {
    PlaceInPlace(&part, misalignment);
  } else {
    if (send != 0) part.send = part.arena->Take(send * size, misalignment);
    if (recv != 0) part.recv = part.arena->Take(recv * size, random.Below(64 / size) * size * (misalignment != 0));
    if (!both && c.count != 0) PlaceIgnored(&part, &random);
  }
  if (send != 0) FillSend(c, n, rank, part.send);
  if (Folds(c.call) && c.fold == Fold::kPreMulSum) {
    part.scalar = part.arena->Take(size, 0);
    StoreElement(part.scalar, c.type, 0, PreMulScalar(c, n, rank));
  }
  return part;
}

ncclResult_t CaseRunner::LaunchPart(const Part& part, cudaStream_t stream) {
  const Case& c = part.c;
  const ncclComm_t comm = clique_.comm(part.member);
  ncclRedOp_t op = BuiltinOp(c.fold);
  if (part.scalar == nullptr) return Launch(c, part.send, part.recv, op, comm, stream);
  const bool device = (c.seed & 1) != 0;
  const ncclResult_t made =
      ncclRedOpCreatePreMulSum(&op, part.scalar, c.type, device ? ncclScalarDevice : ncclScalarHostImmediate, comm);
  if (made != ncclSuccess) return made;
  // An immediate scalar has been read: what follows must not matter.
  if (!device) std::memset(part.scalar, 0xee, TypeBytes(c.type));
  const ncclResult_t result = Launch(c, part.send, part.recv, op, comm, stream);
  const ncclResult_t destroyed = ncclRedOpDestroy(op, comm);
  return result != ncclSuccess ? result : destroyed;
}

bool CaseRunner::Enqueue(const Case& c, const Style& style, int stream) {
  if (!good_ || !context_.Step("%s", c.Text().c_str())) return false;
  if (!MakeRoom(c)) return false;
  const size_t first = parts_.size();
  for (int i = 0; i < clique_.size(); ++i) parts_.push_back(Prepare(c, style, i));
  const bool group = clique_.size() > 1;
  if (group) good_ = ncclGroupStart() == ncclSuccess && good_;
  for (size_t i = first; i < parts_.size(); ++i) {
    const ncclResult_t result = LaunchPart(parts_[i], Cuda(clique_.stream(parts_[i].member, stream)));
    EXPECT_OK(result) << c.Text();
    good_ = good_ && result == ncclSuccess;
  }
  if (group) {
    const ncclResult_t result = ncclGroupEnd();
    EXPECT_OK(result) << c.Text();
    good_ = good_ && result == ncclSuccess;
  }
  return good_;
}

std::string CaseRunner::Check(const Part& part) const {
  const int n = clique_.nranks();
  const int rank = clique_.rank(part.member);
  std::string text = part.recv == nullptr ? "" : CheckRecv(part.c, n, rank, part.recv);
  if (!text.empty()) return "received: " + text;
  size_t begin = 0;
  size_t end = 0;
  if (part.in_place) OverwrittenRange(part.c, n, rank, &begin, &end);
  text = part.send == nullptr ? "" : CheckSend(part.c, n, rank, part.send, begin, end);
  if (!text.empty()) return "the send buffer changed: " + text;
  if (part.ignored != nullptr && !part.arena->Untouched(part.ignored, part.ignored_bytes)) {
    return "a buffer that the call ignores on this rank was written";
  }
  return "";
}

bool CaseRunner::Finish() {
  good_ = clique_.Synchronize() && good_;
  for (const Part& part : parts_) {
    const std::string text = good_ ? Check(part) : "";
    if (text.empty()) continue;
    good_ = false;
    ADD_FAILURE() << "rank " << clique_.rank(part.member) << " of " << clique_.nranks() << ", " << part.c.Text()
                  << (part.in_place ? ", in place: " : ": ") << text;
  }
  for (MemberArenas& arenas : arenas_) {
    for (auto& arena : arenas.by_memory) {
      const std::string text = good_ ? arena->CheckSentinels() : "";
      EXPECT_EQ(text, "") << "after up to " << parts_.size() << " operations, the last " << parts_.back().c.Text();
      good_ = good_ && text.empty();
      arena->Reset();
    }
  }
  parts_.clear();
  return good_;
}

bool CaseRunner::Run(const Case& c, const Style& style) { return Enqueue(c, style) && Finish(); }

}  // namespace axccl::harness
