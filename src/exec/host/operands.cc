#include "src/exec/host/operands.h"

#include "src/exec/host/flat_operands.h"
#include "src/exec/host/uneven_operands.h"
#include "src/exec/host/view_operands.h"

namespace axccl::exec {
namespace {

constinit const FlatOperands kFlat;
constinit const EvenOperands kEven;
constinit const UnevenOperands kUneven;

}  // namespace

const Operands* Operands::FormOf(const Call& call) {
  if (call.views == nullptr) return &kFlat;
  return call.uneven() ? static_cast<const Operands*>(&kUneven) : &kEven;
}

AnnouncedBuffer LocateBuffer(const Channel& channel, const void* p, uint64_t bytes) {
  if (p == nullptr || bytes == 0) return {0, MemoryKind::kUnused};
  if (uint64_t offset; channel.owner()->InHeap(p, bytes, &offset)) return {offset, MemoryKind::kHeap};
  return {reinterpret_cast<uint64_t>(p), MemoryKind::kPlain};
}

Result<ReachedBuffer> ReachBuffer(const Member& member, const AnnouncedBuffer& announced, uint64_t bytes) {
  const auto [address, kind] = announced;
  if (kind == MemoryKind::kUnused) return ReachedBuffer();
  if (kind != MemoryKind::kHeap)
    return ReachedBuffer{reinterpret_cast<std::byte*>(address), !member.reach->addresses()};
  const Result<std::byte*> where = member.reach->At(address, bytes);
  if (where.ok()) return ReachedBuffer{where.value(), false};
  if (where.status().code() != Code::kRemoteError) return where.status();
  return MakeStatus(Code::kRemoteError, "rank %d announced a buffer outside its heap", member.rank);
}

}  // namespace axccl::exec
