#include "tests/fuzz/targets.h"

#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/param.h"
#include "src/base/service.h"
#include "src/boot/interfaces.h"
#include "src/boot/link.h"
#include "src/boot/node.h"
#include "src/boot/unique_id.h"
#include "src/boot/wire.h"
#include "src/comm/board.h"
#include "src/comm/net/address.h"
#include "src/cost/machine.h"
#include "src/cost/network.h"
#include "src/plan/text.h"
#include "src/program/check.h"
#include "src/program/simulate/machines.h"
#include "src/program/stablehlo.h"
#include "src/program/text.h"
#include "src/topo/nccl_file.h"
#include "src/topo/text.h"
#include "src/tune/filter.h"
#include "transports/remote/line_proof.h"
#include "transports/remote/notice.h"
#include "transports/remote/wire.h"
#include "transports/tcp/connection.h"
#include "transports/tcp/frame.h"
#include "transports/tcp/peer.h"

namespace axccl::fuzz {
namespace {

// Not assert, because it must work in every build.
void Check(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "fuzz target: %s\n", what);
  std::abort();
}

std::string_view Text(const uint8_t* data, size_t size) { return {reinterpret_cast<const char*>(data), size}; }

// ---- src/boot ----

// An id that is accepted is the same after packing it again.
void UniqueId(const uint8_t* data, size_t size) {
  boot::UniqueId id{};
  std::memcpy(id.bytes, data, std::min(size, sizeof id.bytes));
  Result<boot::IdFields> fields = boot::Unpack(id);
  if (!fields.ok()) {
    // The checksum rejects mutations, so this tries again with a correct one.
    boot::IdFields raw;
    std::memcpy(static_cast<void*>(&raw), id.bytes, sizeof id.bytes);
    fields = boot::Unpack(boot::Pack(raw));
    if (!fields.ok()) return;
    id = boot::Pack(raw);
  }
  Check(fields.value().num_addresses >= 1 && fields.value().num_addresses <= 2, "number of addresses");
  for (int i = 0; i < fields.value().num_addresses; ++i) {
    socklen_t bytes = 0;
    const boot::Address& address = fields.value().address[static_cast<size_t>(i)];
    (void)boot::ToSockaddr(address, &bytes);
    Check(!boot::ToText(address).empty(), "address without text");
  }
  const boot::UniqueId again = boot::Pack(fields.value());
  Check(std::memcmp(again.bytes, id.bytes, sizeof id.bytes) == 0, "an id changes when packed again");
}

// Numeric hosts, and texts that cannot be hosts, because names would be looked up.
void HostPort(const uint8_t* data, size_t size) {
  const std::string text(Text(data, size));
  std::string host = text.substr(0, text.rfind(':'));
  if (host.size() >= 2 && host.front() == '[' && host.back() == ']') host = host.substr(1, host.size() - 2);
  in6_addr address;
  const bool numeric =
      inet_pton(AF_INET, host.c_str(), &address) == 1 || inet_pton(AF_INET6, host.c_str(), &address) == 1;
  if (!numeric && !host.empty() && text.find(':') != std::string::npos) return;
  const auto id = boot::IdFromText(text);
  if (id.ok()) Check(boot::CheckUniqueId(id.value()).ok(), "an id that its own check refuses");
}

// First line: NCCL_SOCKET_IFNAME; second: family; then one interface name per line.
void Interfaces(const uint8_t* data, size_t size) {
  std::vector<std::string> lines(1);
  for (const char c : Text(data, size)) {
    if (c == '\n') {
      lines.emplace_back();
    } else {
      lines.back() += c;
    }
  }
  lines.resize(std::max<size_t>(lines.size(), 2));
  std::vector<boot::Interface> interfaces;
  for (size_t i = 2; i < lines.size(); ++i) {
    boot::Address address;
    address.family = i % 2 == 0 ? 4 : 6;
    address.ip[0] = static_cast<uint8_t>(i);
    interfaces.push_back({lines[i], i % 5 == 0, {address}, i % 7 != 0, i % 3 != 0});
  }
  const auto addresses = boot::SelectAddresses(interfaces, lines[0], lines[1]);
  const auto names = boot::SelectNames(interfaces, lines[0], lines[1]);
  Check(addresses.ok() == names.ok(), "addresses and names disagree");
  if (addresses.ok()) Check(!addresses.value().empty() && addresses.value().size() <= 2, "number of addresses");
}

// No byte string is accepted as a sealed frame, and an error frame never becomes ok.
void Frame(const uint8_t* data, size_t size) {
  boot::FrameHeader header;
  std::memcpy(static_cast<void*>(&header), data, std::min(size, sizeof header));
  const size_t used = std::min(size, sizeof header);
  const auto payload = std::as_bytes(std::span(data + used, size - used));
  for (const boot::Role role : {boot::Role::kHub, boot::Role::kRank, boot::Role::kChild, boot::Role::kParent}) {
    size_t limit = 0;
    if (boot::PayloadLimit(role, header.type, 8, &limit)) Check(limit <= 8 * boot::kMaxContribution, "limit");
  }
  boot::FrameCipher cipher(boot::Key{1}, boot::Role::kHub);
  header.bytes = static_cast<uint32_t>(payload.size());
  header.sequence = 0;
  Check(!cipher.Open(header, payload), "a forged frame was opened");
  const Status status = boot::DecodeError(payload);
  Check(!status.ok() && status.code() <= Code::kTimeout, "an error frame became something else");
  for (const char c : status.message()) Check(c >= 0x20 && c <= 0x7e, "a message with bytes no terminal should see");
}

service::Loop* TheLoop() {
  static service::Loop* const loop = service::Loop::Get().value();
  return loop;
}

// Bytes on a link's socket, from a peer that has the key or not: sealed frames of every type, order and length reach
// the node of a tree behind it. Records of {type, length, length bytes}; type 255: raw bytes.
void TreeLink(const uint8_t* data, size_t size) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) != 0) return;
  const service::Fd peer(ends[1]);
  const boot::Key key{3};
  boot::FrameCipher sender(key, boot::Role::kRank);
  (void)!TheLoop()
      ->Run([&] {
        auto node = std::make_shared<boot::Node>(TheLoop(), 1, 9, 1, boot::Secret{});
        boot::Hello hello;
        hello.rank = node->branch().children.empty() ? 2 : node->branch().children[0];
        hello.nranks = 9;
        node->Enter(service::Fd(ends[0]), boot::FrameCipher(key, boot::Role::kHub), hello, boot::JoinBody());
        while (size >= 2) {
          const uint8_t type = data[0];
          const size_t bytes = std::min<size_t>(data[1], size - 2);
          const auto payload = std::as_bytes(std::span(data + 2, bytes));
          if (type != 255) {
            const boot::FrameHeader header = sender.Seal(static_cast<boot::FrameType>(type), payload);
            (void)!write(peer.get(), &header, sizeof header);
          }
          (void)!write(peer.get(), payload.data(), payload.size());
          // The node also gets the same payload directly, as from the rank above and from the hubs.
          for (const int from : {-1, -2, -3}) {
            size_t limit = 0;
            const auto as = from == -1 ? boot::Role::kChild : boot::Role::kRank;
            if (boot::PayloadLimit(as, static_cast<boot::FrameType>(type), 9, &limit) && bytes <= limit &&
                (type & 64) == 0)
              node->OnFrame(from, static_cast<boot::FrameType>(type), payload);
          }
          data += 2 + bytes;
          size -= 2 + bytes;
        }
        node->OnClosed(-1, "fuzz");
      })
      .ok();
  // The loop reads what was written when the link's socket is readable; closing the peer's end ends the link.
}

// ---- src/base ----

// A parameter file of any content leaves every parameter with an acceptable value.
void ConfFile(const uint8_t* data, size_t size) {
  static const std::string path = [] {
    std::string name = "/tmp/axccl-fuzz-conf-" + std::to_string(getpid());
    setenv("NCCL_CONF_FILE", name.c_str(), 1);
    return name;
  }();
  FILE* const file = std::fopen(path.c_str(), "wb");
  if (file == nullptr) return;
  (void)!std::fwrite(data, 1, size, file);
  std::fclose(file);
  param::Reset();
  for (const param::Info& info : param::Table()) {
    // These would open files or silence the driver.
    if (std::string_view(info.name).starts_with("NCCL_DEBUG")) continue;
    const std::string text = param::Get(info.name);
    if (*info.words != '\0' && !text.empty())
      Check(std::string_view(info.words).find(text) != std::string_view::npos, "a word that is none");
    if (std::string_view(info.type) == "int" || std::string_view(info.type) == "bytes") {
      const int64_t value = param::GetInt(info.name);
      Check(value >= info.least && value <= info.most, "a number out of range");
    }
    (void)param::GetShown(info.name);
  }
  std::remove(path.c_str());
}

void Number(const uint8_t* data, size_t size) {
  for (const param::Info& info : param::Table()) {
    int64_t value = 0;
    double seconds = 0;
    if (param::ParseInt(info, Text(data, size), &value))
      Check(value >= info.least && value <= info.most, "a number out of range");
    if (param::ParseSeconds(info, Text(data, size), &seconds))
      Check(seconds >= 0 && seconds <= 1e12, "seconds out of range");
  }
}

// ---- src/plan, src/program, src/cost, src/tune ----

// An accepted input has one text, which is accepted again.
template <class Parse, class Print>
void RoundTrip(std::string_view input, Parse parse, Print print) {
  const auto value = parse(input);
  if (!value.ok()) return Check(!value.status().message().empty(), "refused without a reason");
  const std::string text = print(value.value());
  const auto again = parse(text);
  Check(again.ok(), "what was printed is refused");
  Check(print(again.value()) == text, "what was printed changes");
}

void Schedule(const uint8_t* data, size_t size) {
  RoundTrip(Text(data, size), plan::Parse, [](const plan::Schedule& schedule) { return plan::Print(schedule); });
}
// An accepted text is its own canonical text, and any program can be checked.
void Program(const uint8_t* data, size_t size) {
  const Result<program::Program> program = program::Parse(Text(data, size));
  if (!program.ok()) return;
  Check(program::Print(program.value()) == Text(data, size), "the text of a program changes");
  (void)program::Check(program.value());
}
// What is imported is well-formed: it has a text that is accepted and means the same.
void Stablehlo(const uint8_t* data, size_t size) {
  const Result<program::Program> program = program::ImportStablehlo(Text(data, size));
  if (!program.ok()) return Check(!program.status().message().empty(), "refused without a reason");
  const Result<program::Program> again = program::Parse(program::Print(program.value()));
  Check(again.ok() && again.value() == program.value(), "an imported program is not well-formed");
}
// A text that is refused is refused with line and column.
void Fabric(const uint8_t* data, size_t size) {
  const Result<program::Machines> machines = program::ParseMachines(Text(data, size));
  if (!machines.ok()) {
    int line = 0, column = 0;
    const std::string why(machines.status().message());
    Check(std::sscanf(why.c_str(), "line %d column %d: found ", &line, &column) == 2 && line > 0 && column > 0,
          "refused without line and column");
  }
  RoundTrip(Text(data, size), program::ParseMachines,
            [](const program::Machines& parsed) { return program::Print(parsed); });
}
void Machine(const uint8_t* data, size_t size) {
  RoundTrip(Text(data, size), cost::FromText, [](const cost::Machine& machine) { return cost::ToText(machine); });
}
void Network(const uint8_t* data, size_t size) {
  RoundTrip(Text(data, size), cost::NetworkFromText, [](const cost::KeptNetwork& kept) { return cost::ToText(kept); });
}

void Filter(const uint8_t* data, size_t size) {
  const Result<tune::Filter> filter = tune::Filter::Parse(Text(data, size));
  if (!filter.ok()) return;
  for (int kind = 0; kind < plan::kNumKinds; ++kind) (void)filter.value().Admits(static_cast<plan::Kind>(kind), "ring");
}

// ---- transports/remote, transports/tcp ----

// The messages of a stranger to a process that waits for a lifeline's call, from a known and an unknown process: the
// stranger is never accepted as the peer.
void Line(const uint8_t* data, size_t size) {
  static const remote::LineIdentity self = remote::LineIdentity::Make().value(),
                                    peer = remote::LineIdentity::Make().value();
  static const remote::LineKeys keys = self.KeysWith(peer.public_key(), false).value();
  constexpr remote::LineProcess kSelf{0xff}, kPeer{0x01};
  bool known = size % 2 == 0;
  remote::LineGuest guest(
      kSelf, [&](const remote::LineProcess& process) { return known && process == kPeer ? &keys : nullptr; });
  using Verdict = remote::LineGuest::Verdict;
  while (size > 0) {
    const std::span<std::byte> room = guest.room();
    const size_t some = std::min(size, room.size());
    std::memcpy(room.data(), data, some);
    Verdict verdict = room.empty() ? guest.Look() : guest.Took(some);
    Check(verdict != Verdict::kProved, "a stranger is taken for a peer");
    if (verdict == Verdict::kDrop || (verdict == Verdict::kUnknown && known)) return;
    known = known || verdict == Verdict::kUnknown;
    data += some;
    size -= some;
  }
}

// What comes on a lifeline, with notices of a key that everybody knows: whatever is taken for one is what a writer with
// that key writes at that place.
void LifelineNotices(const uint8_t* data, size_t size) {
  constexpr remote::NoticeWriter::Key kKey{7};
  const auto* const bytes = reinterpret_cast<const std::byte*>(data);
  remote::NoticeReader reader(kKey);
  std::vector<remote::Notice> notices;
  const bool taken =
      reader.Read({bytes, size / 2}, &notices) && reader.Read({bytes + size / 2, size - size / 2}, &notices);
  remote::NoticeWriter writer(kKey);
  const auto is_beat = [](std::byte byte) { return byte == remote::kBeatByte; };
  size_t at = 0;
  for (const remote::Notice& notice : notices) {
    std::vector<std::byte> again;
    writer.Write(notice, &again);
    while (at < size && is_beat(bytes[at])) ++at;
    Check(at + again.size() <= size && std::equal(again.begin(), again.end(), bytes + at),
          "a notice that nobody has written");
    at += again.size();
  }
  while (at < size && is_beat(bytes[at])) ++at;
  Check(taken || at < size, "beats are refused");
}

// A board that is accepted is the same after packing it again, if its unused fields are 0.
void OpBoard(const uint8_t* data, size_t size) {
  comm::Board board, again;
  if (!comm::UnpackBoard({reinterpret_cast<const std::byte*>(data), size}, &board)) return;
  const std::vector<std::byte> bytes = comm::PackBoard(board, size);
  Check(bytes.size() == size && comm::UnpackBoard(bytes, &again), "a board that is accepted once only");
  Check(again.total == board.total && again.ops.size() == board.ops.size(), "another board");
  Check(comm::PackBoard(again, size) == bytes, "other operations");
}

// The sizes of memory and data, and a header. A header that is accepted respects both.
void Message(const uint8_t* data, size_t size) {
  uint32_t sizes[2];
  if (size < sizeof(sizes)) return;
  std::memcpy(sizes, data, sizeof(sizes));
  remote::Message message;
  if (!remote::ParseMessage(data + sizeof(sizes), size - sizeof(sizes), &message)) return;
  uint64_t number = 0;
  if (remote::MayCome(message.head.turn, message.head.comm >> 8, &number)) {
    const uint64_t next = message.head.comm >> 8;
    Check(number >= next && number - next < remote::kMostAhead, "a number that is far");
    Check(static_cast<uint32_t>(number) == message.head.turn, "another number");
  }
  if (!remote::FitsMemory(message, sizes[0], sizes[1])) return;
  using Wide = unsigned __int128;
  Wide sum = 0;
  for (const remote::WireStretch& stretch : message.stretches()) {
    Check(Wide{stretch.offset} + stretch.bytes <= sizes[0], "a stretch leaves the memory");
    Check(stretch.guarded == 0 || stretch.bytes >= 8, "a guarded stretch has no first word");
    Check(stretch.on_device == 0 || message.head.stretches == 1, "a stretch on a device among others");
    sum += stretch.bytes;
  }
  Check(sum == sizes[1], "data of another size");
  Check(message.head.line == ~uint64_t{0} || Wide{message.head.line} + 64 <= sizes[0], "a line leaves the memory");
}

// Rank 1 of communicator 1, in another process, as rank 0 reaches it. What comes from it stays in memory that is its
// own.
struct Sender {
  ~Sender() { reach->Detach(); }
  const std::shared_ptr<tcp::Peer> peer =
      std::make_shared<tcp::Peer>(nullptr, tcp::Peer::ProcessId{}, std::vector<uint8_t>{0}, tcp::Protection{});
  const std::shared_ptr<tcp::Reach> reach = [this] {
    static std::vector<std::byte> block(64u << 10);
    remote::ConnectOptions options;
    options.comm = 1;
    options.peer = 1;
    options.block = block.data();
    options.block_bytes = block.size();
    options.arrived = [] {};
    return tcp::Reach::Create(nullptr, peer, options).value();
  }();
};

// What a peer sends on a data line that stands: the line always ends.
void DataLine(const uint8_t* data, size_t size) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) != 0) return;
  service::Fd here(ends[0]), there(ends[1]);
  const Sender sender;
  const auto& [peer, reach] = sender;
  {
    std::lock_guard lock(peer->mutex());
    const std::shared_ptr<tcp::Connection> connection = peer->Opened(0, std::move(here), {});
    peer->SendDelayed();
    while (size > 0 && !connection->ended()) {
      const ssize_t sent = send(there.get(), data, std::min<size_t>(size, 4096), MSG_NOSIGNAL);
      if (sent <= 0) break;
      data += sent;
      size -= static_cast<size_t>(sent);
      connection->Receive();
    }
    there.Close();
    for (int i = 0; i < 1000 && !connection->ended(); ++i) connection->Receive();
    Check(connection->ended() && reach->Died(), "a line without an end");
  }
}

// What a mate passes on: a notice, and the message in it.
void PassedNotice(const uint8_t* data, size_t size) {
  const std::span bytes(reinterpret_cast<const std::byte*>(data), size);
  remote::Notice notice;
  if (!remote::UnpackNotice(bytes, &notice)) return;
  const std::vector<std::byte> again = remote::PackNotice(notice);
  Check(std::equal(again.begin(), again.end(), bytes.begin(), bytes.end()), "the notice changes");
  tcp::Frame frame;
  if (!tcp::ParseFrame(notice.text, &frame) || frame.head.kind != tcp::FrameKind::kMessage) return;
  Check(sizeof frame.head + frame.header.size() + frame.data.size() == notice.text.size(), "a frame of another size");
  const Sender sender;
  std::lock_guard lock(sender.peer->mutex());
  (void)sender.peer->Take(frame.header, frame.data, notice.kind == remote::Notice::kMessage);
}

// ---- src/comm ----

// An accepted address means the same when it is packed again.
void NetworkAddress(const uint8_t* data, size_t size) {
  comm::WireNetwork wire{};
  std::memcpy(static_cast<void*>(&wire), data, std::min(size, sizeof wire));
  const Result<remote::NetworkAddress> address = comm::Unpack(wire, 7);
  if (!address.ok()) return;
  const Result<comm::WireNetwork> packed = comm::Pack(address.value(), wire.text);
  Check(packed.ok(), "an accepted address cannot be packed again");
  const Result<remote::NetworkAddress> again = comm::Unpack(packed.value(), 7);
  Check(again.ok() && again.value().rails.size() == address.value().rails.size(), "the rails change");
  for (size_t i = 0; i < address.value().rails.size(); ++i) {
    const remote::RailAddress &one = address.value().rails[i], &other = again.value().rails[i];
    Check(one.network == other.network && one.megabits == other.megabits && one.worker == other.worker,
          "a rail changes");
  }
}

// ---- src/topo ----

// An accepted text is its own canonical text.
void Topology(const uint8_t* data, size_t size) {
  const Result<topo::Machine> machine = topo::Parse(Text(data, size));
  if (machine.ok()) Check(topo::Print(machine.value()) == Text(data, size), "the text of a machine changes");
  (void)topo::ParseRanges(Text(data, size));
}

// What is accepted makes a machine that has a text, whether it is this one or not.
void NcclTopology(const uint8_t* data, size_t size) {
  static const topo::Machine here{"", {{0, 1}}, {{{{0, 0, {{0, 0, {0, 1}}}}}}}, {}, {}};
  const Result<topo::NcclFile> file = topo::ParseNccl(Text(data, size));
  if (!file.ok()) return Check(!file.status().message().empty(), "refused without a reason");
  const topo::Machine machine = topo::MachineOf(file.value(), here, {});
  const Status status = topo::Check(machine);
  if (!status.ok()) std::fprintf(stderr, "%s\n", std::string(status.message()).c_str());
  Check(status.ok(), "an impossible machine");
  Check(topo::Parse(topo::Print(machine)).ok(), "a machine whose text is refused");
  Check(topo::Corrected(file.value(), here, {}) == here, "this machine changes");
}

constexpr Target kTargets[] = {
    {"conf_file", ConfFile},
    {"fabric", Fabric},
    {"data_line", DataLine},
    {"filter", Filter},
    {"frame", Frame},
    {"host_port", HostPort},
    {"interfaces", Interfaces},
    {"line", Line},
    {"machine", Machine},
    {"message", Message},
    {"nccl_topology", NcclTopology},
    {"network", Network},
    {"network_address", NetworkAddress},
    {"notice", LifelineNotices},
    {"number", Number},
    {"op_board", OpBoard},
    {"passed_notice", PassedNotice},
    {"program", Program},
    {"schedule", Schedule},
    {"stablehlo", Stablehlo},
    {"topology", Topology},
    {"tree_link", TreeLink},
    {"unique_id", UniqueId},
};

}  // namespace

std::span<const Target> Targets() { return kTargets; }

}  // namespace axccl::fuzz
