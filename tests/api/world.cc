#include "tests/api/world.h"

#include <utility>

#include "tests/api/faulty_round.h"

namespace axccl::test {
namespace {

constexpr int kDevices[] = {0, 1}, kSpareDevice = 2;
constexpr size_t kBytes = 1 << 16;

void Check(ncclResult_t result, const char* call) {
  if (result != ncclSuccess) Die("%s, without a fault: %s", call, ncclGetLastError(nullptr));
}
#define MUST(call) Check(call, #call)

}  // namespace

ncclResult_t MakeGroups(axcclGroups_t* groups) {
  constexpr int64_t kIds[] = {0, 1};
  axcclGroupSpec_t spec = AXCCL_GROUP_SPEC_INITIALIZER;
  spec.num_partitions = 2;
  spec.ids = kIds;
  spec.num_groups = 1;
  spec.group_size = 2;
  return axcclGroupsCreate(groups, &spec);
}

void AddInts(void* accumulator, const void* operand, size_t count, void*) {
  for (size_t i = 0; i < count; ++i) static_cast<int*>(accumulator)[i] += static_cast<const int*>(operand)[i];
}

axcclView_t World::ViewOf(int* data, int blocks) {
  static constexpr int64_t kSizes[][2] = {{0, 4}, {2, 4}, {4, 4}};
  axcclView_t view = AXCCL_VIEW_INITIALIZER;
  view.data = data;
  view.datatype = ncclInt32;
  view.num_dims = 2;
  view.sizes = kSizes[blocks];
  return view;
}

ncclResult_t World::Wait() const {
  for (int r = 0; r < kRanks; ++r) {
    if (const ncclResult_t done = axcclStreamSynchronize(streams[r]); done != ncclSuccess) return done;
    ncclResult_t state = ncclSuccess;
    if (const ncclResult_t asked = ncclCommGetAsyncError(comms[r], &state); asked != ncclSuccess) return asked;
    if (state != ncclSuccess) return state;
  }
  return ncclSuccess;
}

void World::Repair() {
  if (comms[0] == nullptr) Open();
  Destroy(&made);
  if (also_made != nullptr) MUST(ncclCommDestroy(std::exchange(also_made, nullptr)));
  if (std::exchange(worn, false)) MUST(ncclCommAbort(std::exchange(spare.comm, nullptr)));
  MakeSpare();
  MUST(ncclGetUniqueId(&id));
}

void World::Open() {
  MUST(ncclCommInitAll(comms, kRanks, kDevices));
  for (int r = 0; r < kRanks; ++r) {
    MUST(axcclHostSetDevice(r));
    MUST(axcclStreamCreate(&streams[r], axcclStreamNonBlocking));
  }
  MUST(ncclMemAlloc(&memory, kBytes));
  MUST(MakeGroups(&spare.groups));
  for (int r = 0; r < kRanks; ++r) MUST(axcclChannelCreate(&channels[r], comms[r], spare.groups, 1, 0));
}

void World::MakeSpare() {
  if (spare.comm == nullptr) MUST(ncclCommInitAll(&spare.comm, 1, &kSpareDevice));
  if (spare.groups == nullptr) MUST(MakeGroups(&spare.groups));
  if (spare.channel == nullptr) MUST(axcclChannelCreate(&spare.channel, comms[0], spare.groups, 2, 0));
  if (spare.stream == nullptr) MUST(axcclStreamCreate(&spare.stream, axcclStreamNonBlocking));
  if (spare.event == nullptr) MUST(axcclEventCreate(&spare.event));
  if (spare.memory == nullptr) MUST(ncclMemAlloc(&spare.memory, kBytes));
  if (spare.registration == nullptr) MUST(ncclCommRegister(comms[0], memory, kBytes, &spare.registration));
  if (spare.window == nullptr) MUST(ncclCommWindowRegister(comms[0], memory, kBytes, &spare.window, NCCL_WIN_DEFAULT));
  if (spare.op == ncclNumOps) MUST(axcclRedOpCreateCallback(&spare.op, AddInts, nullptr, ncclInt32, comms[0]));
}

void World::Destroy(Objects* objects) {
  const Objects old = std::exchange(*objects, Objects());
  if (old.op != ncclNumOps) MUST(ncclRedOpDestroy(old.op, comms[0]));
  if (old.window != nullptr) MUST(ncclCommWindowDeregister(comms[0], old.window));
  if (old.registration != nullptr) MUST(ncclCommDeregister(comms[0], old.registration));
  if (old.channel != nullptr) MUST(axcclChannelDestroy(old.channel));
  if (old.groups != nullptr) MUST(axcclGroupsDestroy(old.groups));
  if (old.event != nullptr) MUST(axcclEventDestroy(old.event));
  if (old.stream != nullptr) MUST(axcclStreamDestroy(old.stream));
  if (old.comm != nullptr) MUST(ncclCommDestroy(old.comm));
  if (old.memory != nullptr) MUST(ncclMemFree(old.memory));
}

// Destroys the communicators and with them their operators, registrations and windows.
void World::Close() {
  for (ncclComm_t* comm : {&comms[0], &comms[1], &spare.comm, &made.comm, &also_made})
    (void)ncclCommAbort(std::exchange(*comm, nullptr));
  for (Objects* objects : {&spare, &made}) {
    objects->op = ncclNumOps;
    objects->registration = nullptr;
    objects->window = nullptr;
    Destroy(objects);
  }
  for (axcclPipeline_t& pipeline : pipelines) (void)axcclPipelineDestroy(std::exchange(pipeline, nullptr));
  for (int r = 0; r < kRanks && streams[r] != nullptr; ++r) {
    (void)axcclChannelDestroy(std::exchange(channels[r], nullptr));
    (void)axcclStreamSynchronize(streams[r]);  // returns how the work on it has ended
    MUST(axcclStreamDestroy(std::exchange(streams[r], nullptr)));
  }
  if (memory != nullptr) MUST(ncclMemFree(std::exchange(memory, nullptr)));
  worn = false;
}

}  // namespace axccl::test
