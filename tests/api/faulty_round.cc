#include "tests/api/faulty_round.h"

#include <dirent.h>
#include <time.h>
#include <unistd.h>

#include <cstdarg>
#include <cstdio>
#include <cstring>

#include "tests/api/failing_calls.h"

namespace axccl::test {

void Die(const char* format, ...) {
  Disarm();
  va_list args;
  va_start(args, format);
  std::vfprintf(stderr, format, args);
  va_end(args);
  std::fputc('\n', stderr);
  _exit(1);
}

void Nap() {
  const timespec time{0, 200000};
  nanosleep(&time, nullptr);
}

// ---- a rank ----

void Rank::Run() {
  if (!Begin() || !Split() || !Reduce() || !Exchange()) round_->failed = true;
  End();
}

// Ranks of one process free memory that peers may still read only when all have ended.
void Rank::End() {
  for (ncclComm_t& comm : comms_) {
    if (comm == nullptr) continue;
    if (round_->failed) {
      (void)ncclCommAbort(comm);
    } else if (!Good(ncclCommDestroy(comm), "ncclCommDestroy")) {
      round_->failed = true;
    }
  }
  if (stream_ != nullptr) (void)axcclStreamDestroy(stream_);
  round_->ended.fetch_add(1);
  while (!round_->ways.processes && round_->ended != kRanks) Nap();
  if (buffer_ != nullptr) (void)ncclMemFree(buffer_);
}

// Checks that an error has a text and comes from a fault. Also false when the other rank has failed.
bool Rank::Good(ncclResult_t result, const char* call) {
  if (result == ncclSuccess) return true;
  if (result < 0 || result >= ncclNumResults || result == ncclInProgress) Die("%s returned %d", call, result);
  if (*ncclGetLastError(nullptr) == '\0') Die("%s returned %d without a text", call, result);
  if (!round_->ways.processes && !HasFailed())
    Die("rank %d: %s, without a fault: %s", rank_, call, ncclGetLastError(nullptr));
  return false;
}

bool Rank::Await(ncclComm_t comm, ncclResult_t started, const char* call) {
  if (started != ncclInProgress) return Good(started, call);
  for (ncclResult_t now = ncclInProgress;; Nap()) {
    if (!Good(ncclCommGetAsyncError(comm, &now), "ncclCommGetAsyncError")) return false;
    if (now != ncclInProgress) return Good(now, call);
    if (GivesUp()) return false;
  }
}

bool Rank::Meet() {
  if (rank_ == 0) {
    const bool made = Good(ncclGetUniqueId(&round_->id), "ncclGetUniqueId");
    round_->has_id = made ? 1 : -1;
  }
  while (round_->has_id == 0) Nap();
  return round_->has_id == 1;
}

bool Rank::Begin() {
  config_.blocking = round_->ways.blocking;
  if (!Meet()) return false;
  const ncclResult_t started = ncclCommInitRankConfig(&comms_[1], kRanks, round_->id, rank_, &config_);
  return Await(comms_[1], started, "ncclCommInitRankConfig") &&
         Good(axcclStreamCreate(&stream_, 0), "axcclStreamCreate") &&
         Good(ncclMemAlloc(&buffer_, 2 * kCount * sizeof(int)), "ncclMemAlloc");
}

bool Rank::Split() {
  return Await(comms_[0], ncclCommSplit(comms_[1], 0, rank_, &comms_[0], &config_), "ncclCommSplit");
}

// Waits for the stream. Returns true if all is done and the data must be right.
bool Rank::Done(ncclComm_t comm, ncclResult_t launched, const char* call) {
  if (!Await(comm, launched, call)) return false;
  // If the other rank has failed, it may not even have a communicator to abort.
  for (ncclResult_t now; !round_->ways.blocking && (now = axcclStreamQuery(stream_)) != ncclSuccess; Nap()) {
    if (now != ncclInProgress) return Good(now, "axcclStreamQuery");
    if (GivesUp()) return false;
  }
  if (!Good(axcclStreamSynchronize(stream_), "axcclStreamSynchronize")) return false;
  ncclResult_t error = ncclSuccess;
  return Good(ncclCommGetAsyncError(comm, &error), "ncclCommGetAsyncError") && Good(error, call);
}

bool Rank::Reduce() {
  int* const data = static_cast<int*>(buffer_);
  for (size_t i = 0; i < kCount; ++i) data[i] = static_cast<int>(i) + rank_;
  const ncclResult_t launched = ncclAllReduce(data, data, kCount, ncclInt32, ncclSum, comms_[0], Stream());
  if (!Done(comms_[0], launched, "ncclAllReduce")) return false;
  for (size_t i = 0; i < kCount; ++i)
    if (data[i] != 2 * static_cast<int>(i) + 1) Die("rank %d: reduced element %zu is %d", rank_, i, data[i]);
  return true;
}

bool Rank::Exchange() {
  const int peer = 1 - rank_;
  int* const from = static_cast<int*>(buffer_);
  int* const to = from + kCount;
  for (size_t i = 0; i < kCount; ++i) from[i] = 7 * static_cast<int>(i) + rank_;
  if (!Good(ncclGroupStart(), "ncclGroupStart")) return false;
  bool good = Good(ncclSend(from, kCount, ncclInt32, peer, comms_[1], Stream()), "ncclSend");
  good &= Good(ncclRecv(to, kCount, ncclInt32, peer, comms_[1], Stream()), "ncclRecv");
  const ncclResult_t ended = ncclGroupEnd();
  if (!good) {
    if (ended == ncclSuccess) Die("a call of the group failed, and its end did not");
    return false;
  }
  if (!Done(comms_[1], ended, "ncclGroupEnd")) return false;
  for (size_t i = 0; i < kCount; ++i)
    if (to[i] != 7 * static_cast<int>(i) + peer) Die("rank %d: received element %zu is %d", rank_, i, to[i]);
  return true;
}

// ---- resources ----

namespace {

int EntriesOf(const char* folder) {
  DIR* const open = opendir(folder);
  if (open == nullptr) return -1;
  int entries = 0;
  while (readdir(open) != nullptr) ++entries;
  closedir(open);
  return entries;
}

int SharedMappings() {
  std::FILE* const maps = std::fopen("/proc/self/maps", "r");
  int shared = 0;
  for (char line[4096]; std::fgets(line, sizeof(line), maps) != nullptr;)
    shared += std::strstr(line, "memfd:") != nullptr;
  std::fclose(maps);
  return shared;
}

}  // namespace

Held::Held()
    : descriptors(EntriesOf("/proc/self/fd")), threads(EntriesOf("/proc/self/task")), mappings(SharedMappings()) {}

Held Held::WhenWithin(const Held& usual) {
  Held now;
  for (int naps = 0; !now.Within(usual) && naps < 10000; ++naps) {
    Nap();
    now = Held();
  }
  return now;
}

}  // namespace axccl::test
