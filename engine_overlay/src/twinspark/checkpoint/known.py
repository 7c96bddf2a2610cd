"""What is known of `deepseek-ai/DeepSeek-V4-Flash-0731` and of the two that look like it.

Nobody here holds the real files. All digests below are quoted: the Hub's own LFS identifiers, as
unrelated public repositories recorded them (read 2026-11-30):
lutong-z/deepseek-v4-flash-dgx-spark-deploy `model.lock.json` (at 7872f01b) and
Barist3142/deepseek-v4-flash-0731-in-c `scripts/dsv4_shard_sizes.txt`, which agree on all 48 shards;
rafaelmarins2003/deepseekv4flash-low-memory-cpp `manifests/deepseek-v4-flash-0731.json` (at
9e165c30), whose first 20 shards were compared and agree, and whose author hashed the 26 other
files.

NOT known here, and never guessed: the digests of the preview's and the -DSpark repository's
shards. That none of the latter's 48 equals one of 0731's, while all sizes, `config.json` and the
index are equal, is the third source's finding.
"""

from __future__ import annotations

from dataclasses import dataclass

from twinspark.checkpoint.manifest import FileEntry

REPOSITORY = "deepseek-ai/DeepSeek-V4-Flash-0731"
# Equal but for README.md (7872f01b adds a paragraph to it), so both are accepted.
REVISIONS = ("7872f01b1d1fe23eabc4c98b48bffcef5a386062", "9e165c30e2704aec5d9d593cce3eebd58bbef1cb")
DEFAULT_REVISION = REVISIONS[0]
DSPARK_REVISION = "62af8fffb2f7030cac4de2f0169f5b8d1101b646"
DATES = {REVISIONS[0]: "2026-08-01", REVISIONS[1]: "2026-07-31", DSPARK_REVISION: "2026-07-04"}
DRAFT_PREFIX = "mtp."


@dataclass(frozen=True, slots=True)
class Structure:
    """What headers alone can tell.

    Attributes:
        shards: Number of safetensors files.
        shard_bytes: Their sizes' sum.
        tensors: Number of tensors; None where no source gives it.
        drafts: How many of them are `mtp.*`, the draft head.
    """

    shards: int
    shard_bytes: int
    tensors: int | None
    drafts: int


# 0731 and the -DSpark repository of 2026-07-04 (62af8fff): no header, size or index tells one from
# the other.
FLASH_0731_OR_DSPARK = Structure(48, 166_886_535_336, 72_317, 4_705)
# The preview, `deepseek-ai/DeepSeek-V4-Flash` at 60d8d707: a plain MTP head, in its last shard.
PREVIEW = Structure(46, 159_617_149_040, None, 1_575)

_SHARDS = """\
f3668ba4cccf1ca6a7eb84e888fb92c1cdc7204d472ba9db771e6fd3abf6b874 1059061856
77b26c939a0e25b3113c8d6bb04e1901a748bd4a7d2589e3bfdaabdf1e9bba14 3566321192
412abf4c906faadc221ef0cb50f90fe20bde8454a08ad4dc2364b6b79e7fda5c 3566321192
9610f56bc587fb0ff9a8b68a60299482ee8c433fe5b5587e4257aca98add4a2e 3596229272
f87a5ac7b8becc31f9c3169afd3a6f33fb82b4af9e21022e3755a10bc28f0180 3568768976
4a4f3764e3fc772b9fba67f0a44ef68e18f178b6f00faa80b75db549e51894cd 3590024776
df81bb80e27a689e01fa579eebd6499f86e0b6105f7fea18961aa5eebbbee9bc 3568768976
224968d2b27f8669365ec08657a768dfec40da0585f85f302a31495931f6a526 3590024776
04d69ef1071fff8721c62968c200a5583122b59b015e9ef9b2978bfed271b2b7 3568768976
627145f4ebeb1cc3f5bdd03416b8cb7370b3c96974853cbeb8e5516ad5713e49 3590024776
e4b8e601dcbebe902e0102e7b098b670a121cb8b9564dd719fc41d782c8416e0 3568768976
64ed4e5f6126ba029c462c9d5fca0fc907c5f855b4ba01194d79560f6db16e42 3590026352
8dfe199d07c07ddd141c2c0136a2237f1161250a1a03ebe8deaabac93440da1d 3568770544
45db2f540f825f92453c50335e49aede58cca56bc578d1787c12a0fbca6593e5 3590026352
5810381a0f05b7381c002d299ed6ac19e42eba8070dd17e2703546944d84f292 3568770544
e0530b7024771b0ce2df9b40bcc2232578f3300178487ec216863b0b2835617b 3590026352
ed11130247118b185ade893c0109bad896dd394cb1e066ce4fce044176261d94 3568770544
e393fea96da2a3414ef089354fc32e1c8891954de40958c84d2c2ecf80365b25 3590026352
a74ca4d3e8e82ce20c458bb8b1900110b753793ad4c58d08f38995f719c616f7 3568770544
9f556769926e60309e8defe45ab59fc8b26ae460d30c190cd746a3d78c11e2c2 3590026352
1671cce7f90d781f796b5ca6bf32dd1aeb740abcb2735e41ffd28f62485ce005 3568770544
decd67a4bd97a75fa36861d2ad3067afeefa6a04a20da997fe6c19f171e70132 3590026352
c61a3e179cdbee19bfb8cbc4e111928ce2f1e1f0f4729d7c0cd5634354a4689d 3568770544
fc27aeb4233534f6f7781dcfe57127a3908ae10fc025c5d86dc0682057f8b2fe 3590026352
a66b6b8d5821b68f5b511e4f91e12025cd07d0fa6d0b71e722d825a2d6d878ca 3568770544
657b89314fbaf6eee4acce24b3baf7e5fd2c5986a96ad85b08d90539cde869fe 3590026352
fb01f21a0da0446b0bdf25a127ab19a6b06006acd8735f06a9ebfe34423fd7f5 3568770544
b2fd5cbbb639f16e673bc484e5cca16b52a58bf2ab4bd62592e0c5408712ad7c 3590026352
9ec2fdf900275daeac0980490c5c731cc7868b151ce1de5698f48418de4fa5f0 3568770544
9ed3c317bf967d32133ad3a068ee4c56aae9784bc8b7da694482437f37dc1782 3590026352
d5078c3fca3e6370043606ead7856e0b8fe67a9aab52c415769f29934c4d7f5d 3568770544
163653848f002718d3deaa6ce48885483fc1f2e12e50e44a47477c73ccd91393 3590026352
f2cffd43f2a5f491f4691f8694e6bc08239158e143ae7063dc04f0eb0259214a 3568770544
0f94945121474cfdb6a9ab175914d3811ffbf08e6cc54082e14e473c755d18d8 3590026352
9cb6a316989f7c7385e3ec2bd42ffe766ee126c70ef3466742849982ee1b0f0f 3568770544
7e6761421fe944c2143eb897b983085891b421c148c6c17fb5cd8eaa9bdaa497 3590026352
a59d662f1143596d56c452a1230b717ce43edf678207398c573a2503b0f72c91 3568770544
137fa617a74ba8e73fd76bb1010c7a85d791aaa150006cb66faa04a83e9e730f 3590026352
a29af1aa519d7ce726235ea2c2b38146d756290cda7a82d90c4d4438155b53e4 3568770544
8bc93d8a7d1987dc86b14e22b1d8f42ec31da92c56edd9f312daf43f33a6a206 3590026352
fd312e7fdd6cb5796df356a7f0314f124851dc149991e9fb02c5bed45cc4ba05 3568770544
4d19bf368083c9a183cb0849f316ec17b62f859ca824c0586e779657efb6e6a6 3590026352
b7103842ceb70848f9804f55c193d6a57f43174a587cba42b61b5c1bc4e1303d 3568770544
422d3889fa20c238b7f97464c14df0bcf3328f189c294f41a3a334421dc560c7 3590026352
a5be6aed7b84fc87ec42b5d24ba0b0d67f253a3906fcd99c13f4f7be5958fc00 1059332516
5db924ca907e0d93acd975bd5079c3662717f9ac709f23d079bd8f816d29d9dd 3610455184
62816173f9f6e136b20b48e3b6f16613ac9ea02b5603f636928b253244a548bd 3560111960
cc43742bd24ae6bcdea343a91442f6f66aed2cfebcc6b235470204851ce2f8a9 3692775244
"""

SHARDS = tuple(
    FileEntry(f"model-{number:05d}-of-00048.safetensors", int(size), sha256)
    for number, (sha256, size) in enumerate(map(str.split, _SHARDS.splitlines()), start=1)
)
INDEX = FileEntry(
    "model.safetensors.index.json",
    5_602_871,
    "98efab455cf08dfbbbaaba6f570e1bf10bf927d2b4c3c453a59c2f6f0e3be92b",
)
CONFIG = FileEntry(
    "config.json", 1_888, "6c8f3d2d3b48707541b88f32f22ef3f0f8a6b57d8523281e2b8d3cdb0ae9a023"
)
# The same in both revisions; the files of `encoding/` and `inference/` are not loaded by the
# engine and not listed.
OTHERS = (
    INDEX,
    CONFIG,
    FileEntry(
        "generation_config.json",
        170,
        "5fccff80f55a4d455bbe516bdd552edf3e9623df95e99fbf2a3c3389fdf91af0",
    ),
    FileEntry(
        "tokenizer.json",
        6_367_146,
        "8f9f37ca37fdc4f5fd36d5cf4d3b0e8392edb4e894fd10cc0d70b4957c8633cf",
    ),
)
READMES = {
    "3e66a85d35215e658011f0d8ad4fe7d725c4beacb095892ef5aa96f369f2fa20": "9e165c30",
    "252acafdc9204d0dba3fde1b0a93d71cd1664a4ceadfe222b60117ed0ccc56ff": "7872f01b",
}
FILES = {entry.path: entry for entry in (*SHARDS, *OTHERS)}
