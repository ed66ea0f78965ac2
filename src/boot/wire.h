// The bytes of the rendezvous: hellos, proofs, frames.
//
//   rank -> hub   Hello
//   hub  -> rank  Hello, Proof                    (or Hello with kUnknownId, and the connection ends)
//   rank -> hub   Proof, frame kJoin
//   hub  -> rank  frame kAdmitted; until it has come, the connection may be cut in favour of younger ones, and the rank
//                 begins again
//   then frames both ways
//
// Where ranks meet in a tree (see tree.h) a child greets its parent in the same way, as role kChild, with the id of the
// parent's node and a secret made of those of all ids.
//
// A Proof is BLAKE2b keyed with the id's secret over both hellos (each with a fresh nonce) and the prover's role:
// mutual, bound to rank, nranks and version, and worthless when replayed. The same construction gives the key of the
// connection. A frame is {bytes, type, sequence, MAC} and a payload; its MAC covers direction, header and payload. The
// layouts of Hello and Proof and of the kError frame never change, so that two versions can always tell each other what
// they are.
//
// Little-endian. Pure functions and plain data, not tied to a socket; a FrameCipher belongs to one side of one
// connection.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "src/base/status.h"
#include "src/boot/unique_id.h"

namespace axccl::boot {

// Of all that ranks tell each other: here, when a communicator is set up (src/comm), and in messages (transports/ucx).
// Ranks whose numbers differ do not meet. Counted up whenever any of it changes.
inline constexpr uint32_t kProtocolVersion = 13;
inline constexpr int kMaxRanks = 1 << 16;
inline constexpr size_t kMaxContribution = 4096;
inline constexpr size_t kMaxText = 2048;

// kParent never greets: it is who receives from a child.
enum class Role : uint32_t { kRank = 1, kHub = 2, kUnknownId = 3, kChild = 4, kParent = 5 };

struct Hello {
  static constexpr uint64_t kMagic = 0x6f6c65484c434378ull;
  uint64_t magic = kMagic;
  uint32_t version = kProtocolVersion;
  uint32_t features = 0;  // bits both sides must know to use; unknown ones are ignored
  Role role = Role::kRank;
  int32_t rank = -1;
  int32_t nranks = 0;
  uint32_t reserved = 0;
  IdBytes id{};
  std::array<uint8_t, 32> nonce{};
};
static_assert(sizeof(Hello) == 80);

using Proof = std::array<uint8_t, 32>;
using Key = std::array<uint8_t, 32>;

void FillNonce(Hello* hello);
Proof Prove(const Secret& secret, Role prover, const Hello& rank, const Hello& hub);
bool SameProof(const Proof& a, const Proof& b);  // constant time
Key ConnectionKey(const Secret& secret, const Hello& rank, const Hello& hub);

enum class FrameType : uint16_t {
  kJoin = 1,        // rank -> hub, child -> parent: JoinBody
  kStart = 2,       // hub -> rank: all ranks are there; empty, or for a tree a StartBody. parent -> child: empty
  kContribute = 3,  // rank -> hub: 1..kMaxContribution bytes. child -> parent: as many for every rank below it
  kGathered = 4,    // hub -> rank, parent -> child: as many for every rank
  kError = 5,       // both: u32 code, text; the rendezvous has failed, or this rank gives up
  kLeave = 6,       // rank -> hub, both ways in a tree: done; empty
  kFailed = 7,      // rank -> hub of a tree: as kError, but not about this rank
  kExpired =
      8,  // both ways, where ranks meet in a tree: u32 number of the exchange, text; somebody's deadline has passed
  kAdmitted = 9,  // hub -> rank, parent -> child: you are in; empty
};

// Longest payload `receiver` accepts in a rendezvous of `nranks`; false for a type it never gets.
bool PayloadLimit(Role receiver, FrameType type, int nranks, size_t* limit);

struct FrameHeader {
  uint32_t bytes = 0;
  FrameType type{};
  uint16_t reserved = 0;
  uint64_t sequence = 0;
  std::array<uint8_t, 16> mac{};
};
static_assert(sizeof(FrameHeader) == 32);

// Where a rank can be reached by those below it in a tree. No address: it has nobody below it.
struct NodeAddress {
  IdBytes node{};
  std::array<Address, 2> address{};
  uint32_t num_addresses = 0;
  uint32_t reserved = 0;
};
static_assert(sizeof(NodeAddress) == 72);

struct JoinBody {
  uint64_t patience_ns = 0;  // until the rank's deadline
  uint32_t pid = 0;
  uint32_t roots = 0;  // ids the ranks have; 0: they meet at one hub, in no tree
  std::array<char, 64> host{};
  uint32_t root = 0;  // which of them this hub serves
  uint32_t reserved = 0;
  NodeAddress listens;
};
static_assert(sizeof(JoinBody) == 160);

// Who is above the rank in the tree; no address: nobody.
struct StartBody {
  NodeAddress parent;
  uint32_t pid = 0;
  uint32_t reserved = 0;
  std::array<char, 64> host{};
};
static_assert(sizeof(StartBody) == 144);

// Seals outgoing and opens incoming frames of one connection, as `self`.
class FrameCipher {
 public:
  FrameCipher(const Key& key, Role self) : key_(key), self_(self) {}

  FrameHeader Seal(FrameType type, std::span<const std::byte> payload);
  // False: forged, replayed, reordered or damaged. The connection must then be closed.
  bool Open(const FrameHeader& header, std::span<const std::byte> payload);

 private:
  std::array<uint8_t, 16> Mac(Role sender, const FrameHeader& header, std::span<const std::byte> payload) const;

  Key key_;
  Role self_;
  uint64_t sent_ = 0;
  uint64_t received_ = 0;
};

// Payload of kError. Text is cut at kMaxText; what a peer sends is reduced to printable ASCII. DecodeError never gives
// ok.
std::string EncodeError(const Status& status);
Status DecodeError(std::span<const std::byte> payload);
// What a rank did wrong is everybody's error; what happened to it is, to the others, an error of a remote rank.
Code CodeForOthers(Code code);

}  // namespace axccl::boot
