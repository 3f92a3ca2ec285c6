#include "protocol.h"

#include <algorithm>

#include "check.h"

using namespace smoe;

namespace {

Dialect dialect(int version = 2) { return {version, 100, {}}; }

GenerateRequest accepted(const std::string& line, int version = 2) {
  const Request request = parse_request(line, dialect(version));
  CHECK_EQ(request.kind, RequestKind::generate);
  return request.generate;
}

void check_refused(const std::string& line, const std::string& detail, int version = 2) {
  const Request request = parse_request(line, dialect(version));
  if (request.kind != RequestKind::refused) check::fail(__FILE__, __LINE__, "accepted: " + line);
  CHECK_EQ(request.reason, "bad_request");
  CHECK_EQ(request.detail, detail);
}

bool allows_exactly(const Mask& mask, const std::vector<int>& ids, int vocabulary) {
  for (int i = 0; i < vocabulary; ++i)
    if (mask.allows(i) != (std::find(ids.begin(), ids.end(), i) != ids.end())) return false;
  return true;
}

}  // namespace

TEST(a_version_1_line) {
  const GenerateRequest request = accepted("GEN 12 t=0.5 p=0.9 k=40 r=1.1 zz=9 1,2,99", 1);
  CHECK_EQ(request.max_tokens, 12);
  CHECK_EQ(request.sampling.temperature, 0.5);
  CHECK_EQ(request.sampling.top_p, 0.9);
  CHECK_EQ(request.sampling.top_k, 40);
  CHECK_EQ(request.sampling.repetition_penalty, 1.1);
  CHECK(request.ids == (std::vector<int>{1, 2, 99}));
}

TEST(version_1_knows_no_later_keys) {
  const GenerateRequest request = accepted("GEN 1 mask=1 seed=x lp=5 m=none 3", 1);
  CHECK(!request.mask && !request.sampling.seeded && request.sampling.logprobs == 0);
}

TEST(all_keys_of_version_2) {
  const GenerateRequest request =
      accepted("GEN 8192 id=9007199254740992 seed=18446744073709551615 m=0.05 pp=-2 fp=2 lb=3:-100;4:1.5 stop=5;6 "
               "ignore_eos=1 lp=21 mask=1 slide=1 0");
  CHECK_EQ(request.id, std::uint64_t{1} << 53);
  CHECK_EQ(request.sampling.seed, ~std::uint64_t{0});
  CHECK_EQ(request.sampling.min_p, 0.05);
  CHECK_EQ(request.sampling.presence_penalty, -2.0);
  CHECK_EQ(request.sampling.frequency_penalty, 2.0);
  CHECK(request.sampling.bias == (std::vector<std::pair<int, double>>{{3, -100.0}, {4, 1.5}}));
  CHECK(request.stop == (std::vector<int>{5, 6}));
  CHECK(request.ignore_eos && request.mask && request.slide && request.sampling.seeded);
  CHECK_EQ(request.sampling.logprobs, 21);
}

TEST(top_p_is_clamped) {
  CHECK_EQ(accepted("GEN 1 p=0 3").sampling.top_p, 0.01);
  CHECK_EQ(accepted("GEN 1 p=7 3").sampling.top_p, 1.0);
}

TEST(wrong_lines_name_the_field) {
  check_refused("", "field=request");
  check_refused("HELO 2", "field=request");
  check_refused("gen 1 2", "field=request");
  check_refused("RESET now", "field=request");
  check_refused("GEN", "field=max_tokens");
  check_refused("GEN 0 1", "field=max_tokens", 1);
  check_refused("GEN -1 1", "field=max_tokens");
  check_refused("GEN 0 plp=22 1", "field=plp");
  check_refused("GEN 8193 1", "field=max_tokens");
  check_refused("GEN 1.5 1", "field=max_tokens");
  check_refused("GEN +5 1", "field=max_tokens");
  check_refused("GEN 99999999999999999999 1", "field=max_tokens");
  for (const char* ids : {"", "1,", ",1", "1,,2", "100", "-1", "1 2", "1,a", "0x1", "1;2", "99999999999"})
    check_refused(std::string("GEN 1 ") + ids, "field=ids");
  for (const char* word : {"t=", "t=nan", "t=inf", "t=0x1", "t=1e999", "t=1_0", "p=", "k=-1", "k=1025", "k=2.0", "r=0", "r=-1",
                           "m=1.1", "pp=2.1", "fp=-3", "lb=1", "lb=1:", "lb=100:1", "lb=1:101", "lp=22", "lp=-1", "id=0", "seed=-1",
                           "seed=18446744073709551616", "stop=", "stop=100", "ignore_eos=2", "mask=yes", "slide="}) {
    const std::string text(word);
    check_refused("GEN 1 " + text + " 1", "field=" + text.substr(0, text.find('=')));
  }
  check_refused("GEN 1 mask=1 1", "field=id");
  check_refused("HELLO", "field=version");
  check_refused("HELLO 1", "field=version");
  check_refused("CANCEL", "field=id");
  check_refused("CANCEL x", "field=id");
  check_refused("MASK 0 all", "field=id");
}

TEST(more_ids_than_the_engine_holds) {
  std::string line = "GEN 1 7";
  for (int i = 0; i < kMostIds - 1; ++i) line += ",7";
  CHECK_EQ(accepted(line).ids.size(), std::size_t{kMostIds});
  const Request request = parse_request(line + ",7", dialect());
  CHECK_EQ(request.reason, "ctx_overflow");
}

TEST(the_other_verbs) {
  CHECK_EQ(parse_request("HELLO 2", dialect()).kind, RequestKind::hello);
  CHECK_EQ(parse_request("HELLO 3", dialect()).kind, RequestKind::hello);
  CHECK_EQ(parse_request("STATUS\r", dialect()).kind, RequestKind::status);
  CHECK_EQ(parse_request("HEAT", dialect()).kind, RequestKind::heat);
  CHECK_EQ(parse_request("RESET", dialect()).kind, RequestKind::reset);
  CHECK_EQ(parse_request("CANCEL 17", dialect()).id, std::uint64_t{17});
  const Request mask = parse_request("MASK 17 only:1;2", dialect());
  CHECK_EQ(mask.kind, RequestKind::mask);
  CHECK_EQ(mask.mask_set, std::string_view("only:1;2"));
}

TEST(masks) {
  Mask mask;
  CHECK(Mask::parse("all", 11, &mask) && mask.allows_all());
  CHECK(Mask::parse("none", 11, &mask) && mask.empty());
  CHECK(Mask::parse("only:0;10", 11, &mask) && allows_exactly(mask, {0, 10}, 11));
  CHECK(Mask::parse("not:0;1;2;3;4;5;6;7;8", 11, &mask) && allows_exactly(mask, {9, 10}, 11));
  CHECK(Mask::parse("bits:gQQ=", 11, &mask) && allows_exactly(mask, {0, 7, 10}, 11));  // 0x81 0x04
  CHECK(Mask::parse("bits://8=", 11, &mask) && allows_exactly(mask, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, 11));
  CHECK(Mask::parse("bits:gQQA", 24, &mask) && allows_exactly(mask, {0, 7, 10}, 24));  // no padding needed
  CHECK(Mask::parse("bits:gQ==", 8, &mask) && allows_exactly(mask, {0, 7}, 8));
  for (const char* bad : {"", "some", "only", "only:", "only:11", "only:x", "not:", "bits:", "bits:gQQ", "bits:gQQ==", "bits:gQQA",
                          "bits:g=Q=", "bits:g Q=", "all:1"})
    CHECK(!Mask::parse(bad, 11, &mask));
}

TEST(answers) {
  CHECK_EQ(format_error(1, "bad_request", "field=k"), "<<ERR bad_request>>\n");
  CHECK_EQ(format_error(2, "bad_request", "field=k"), "<<ERR bad_request field=k>>\n");
  CHECK_EQ(format_error(2, "read_failed", "a\nb: gone"), "<<ERR read_failed a_b: gone>>\n");
  CHECK_EQ(format_progress(3, 9, 2), "<<PREFILL done=3 total=9 cached=2>>\n");
  CHECK_EQ(format_token(12, nullptr), "12\n");
  Logprobs logprobs{-0.25, {}};
  CHECK_EQ(format_token(12, &logprobs), "12 lp=-0.25\n");
  logprobs.top = {{12, -0.25}, {7, -2.5}};
  CHECK_EQ(format_token(12, &logprobs), "12 lp=-0.25 top=12:-0.25;7:-2.5\n");
  Figures figures;
  figures.prompt = 5;
  figures.bytes_read = 1ull << 40;
  figures.finish = "length";
  CHECK_EQ(format_end(1, figures), "fin=length <<DONE>>\n");
  CHECK_EQ(format_end(2, figures),
           "prompt=5 cached=0 generated=0 prefill_ms=0.0 decode_ms=0.0 hits=0 misses=0 bytes=1099511627776 stall_ms=0.0 "
           "slid=0 fin=length <<DONE>>\n");
}

TEST(a_refused_key_cannot_break_the_line) {
  const Request request = parse_request("GEN 1 k\x01>>\xff=1 k=x 1", dialect());
  CHECK_EQ(request.detail, "field=k");
  CHECK_EQ(protocol_value("a b\n>"), "a_b_>");
}

TEST(popularity_is_a_list_of_counts_a_layer) {
  const Request request = parse_request("WARM 1,0;4294967295,2", dialect());
  CHECK_EQ(request.kind, RequestKind::warm);
  CHECK(request.popularity == (Popularity{{1, 0}, {4294967295u, 2}}));
  CHECK(parse_request("WARM", dialect()).popularity.empty());
  for (const char* counts : {"1,", ",1", "1;", ";1", "-1", "4294967296", "x"})
    check_refused(std::string("WARM ") + counts, "field=counts");
}
