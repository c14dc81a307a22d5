// node-pg: values, parameters, errors, a cursor, cancel by timeout.
import assert from "node:assert";
import pg from "pg";
import Cursor from "pg-cursor";

const port = Number(process.argv[2]);
const client = new pg.Client({ host: "127.0.0.1", port, user: "ada", database: "headrace" });
await client.connect();

const kinds = await client.query("select * from kinds where nth = $1", [1]);
const row = kinds.rows[0];
assert.strictEqual(row.big, "-9223372036854775808");
assert.strictEqual(row.price, "-12.50");
assert.deepStrictEqual(row.list, [1, null]);
assert.deepStrictEqual(row.texts, ["a,b", null, "NULL"]);
assert.deepStrictEqual([...row.bytes], [0, 255]);
assert.strictEqual(row.flag, true);
assert.strictEqual(row.double, 1 / 3);

const named = { name: "by-part", text: "select count(*)::int as n from many where part = $1" };
for (let part = 0; part < 7; part += 1) {
    const counted = await client.query({ ...named, values: [part] });
    assert.ok([285714, 285715].includes(counted.rows[0].n));
}
const several = await client.query("select 1 as a; select 2 as b");
assert.deepStrictEqual(several.map((result) => Object.values(result.rows[0]).map(Number)), [[1], [2]]);

await assert.rejects(client.query("select * from nothing"), (error) => error.code === "42P01");
await assert.rejects(client.query("select $1::int", ["x"]), (error) => error.code === "22P02");

const cursor = client.query(new Cursor("select id from many order by id"));
const first = await cursor.read(1000);
assert.strictEqual(first.length, 1000);
const second = await cursor.read(10);
assert.strictEqual(second[0].id, "1000");
await cursor.close();

assert.strictEqual((await client.query("select 1::int as one")).rows[0].one, 1);
await client.end();

const pool = new pg.Pool({ host: "127.0.0.1", port, user: "ada", database: "headrace", max: 8 });
const all = await Promise.all(Array.from({ length: 40 }, (_, nth) => pool.query("select $1::int as n", [nth])));
assert.deepStrictEqual(all.map((result) => result.rows[0].n), Array.from({ length: 40 }, (_, nth) => nth));
await pool.end();
console.log("node-pg: done");
