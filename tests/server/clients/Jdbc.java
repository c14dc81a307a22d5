import java.math.BigDecimal;
import java.sql.Connection;
import java.sql.DatabaseMetaData;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Statement;
import java.util.ArrayList;
import java.util.List;

/** pgjdbc: binary results from the fifth execution on, rows in pieces, metadata, cancel. */
public class Jdbc {
    static void check(boolean holds, String what) {
        if (!holds) {
            throw new AssertionError(what);
        }
    }

    public static void main(String[] words) throws Exception {
        String url = "jdbc:postgresql://127.0.0.1:" + words[0] + "/headrace?user=ada";
        try (Connection connection = DriverManager.getConnection(url)) {
            executions(connection);
            pieces(connection);
            metadata(connection);
            errors(connection);
            cancel(connection);
        }
        System.out.println("pgjdbc: done");
    }

    static void executions(Connection connection) throws SQLException {
        String sql = "select nth, big, double, price, text, flag, day, moment, bytes, list from kinds where nth = ?";
        try (PreparedStatement statement = connection.prepareStatement(sql)) {
            for (int nth = 0; nth < 12; nth++) {
                statement.setInt(1, 1);
                try (ResultSet rows = statement.executeQuery()) {
                    check(rows.next(), "a row");
                    check(rows.getLong("big") == Long.MIN_VALUE, "big");
                    check(rows.getDouble("double") == 1.0 / 3, "double");
                    check(rows.getBigDecimal("price").equals(new BigDecimal("-12.50")), "price " + rows.getBigDecimal("price"));
                    check(rows.getString("text").equals("it's \"é\""), "text");
                    check(rows.getBoolean("flag"), "flag");
                    check(rows.getDate("day").toString().equals("1999-12-31"), "day");
                    check(rows.getTimestamp("moment").toString().equals("2024-03-05 10:11:12.5"), "moment " + rows.getTimestamp("moment"));
                    check(rows.getBytes("bytes").length == 2 && rows.getBytes("bytes")[1] == -1, "bytes");
                    Integer[] list = (Integer[]) rows.getArray("list").getArray();
                    check(list.length == 2 && list[0] == 1 && list[1] == null, "list");
                    check(!rows.next(), "one row");
                }
            }
        }
        try (PreparedStatement statement = connection.prepareStatement("select count(*) from many where part = ? and id < ?")) {
            for (int part = 0; part < 7; part++) {
                statement.setInt(1, part);
                statement.setLong(2, 700);
                try (ResultSet rows = statement.executeQuery()) {
                    check(rows.next() && rows.getLong(1) == 100, "count");
                }
            }
        }
    }

    static void pieces(Connection connection) throws SQLException {
        connection.setAutoCommit(false);
        try (Statement statement = connection.createStatement()) {
            statement.setFetchSize(1000);
            long seen = 0;
            try (ResultSet rows = statement.executeQuery("select id from many order by id")) {
                while (rows.next()) {
                    check(rows.getLong(1) == seen, "row " + seen);
                    seen++;
                }
            }
            check(seen == 2_000_000, "all rows: " + seen);
        }
        connection.commit();
        connection.setAutoCommit(true);
    }

    static void metadata(Connection connection) throws SQLException {
        DatabaseMetaData metadata = connection.getMetaData();
        List<String> tables = new ArrayList<>();
        try (ResultSet rows = metadata.getTables(null, "public", "%", new String[] {"TABLE"})) {
            while (rows.next()) {
                tables.add(rows.getString("TABLE_NAME"));
            }
        }
        check(tables.equals(List.of("kinds", "many", "wide")), "tables " + tables);
        List<String> columns = new ArrayList<>();
        try (ResultSet rows = metadata.getColumns(null, "public", "kinds", "%")) {
            while (rows.next()) {
                columns.add(rows.getString("COLUMN_NAME") + ":" + rows.getString("TYPE_NAME"));
            }
        }
        check(columns.size() == 18 && columns.contains("price:numeric"), "columns " + columns);
        try (ResultSet rows = metadata.getSchemas()) {
            check(rows.next(), "schemas");
        }
        try (ResultSet rows = metadata.getPrimaryKeys(null, "public", "kinds")) {
            check(!rows.next(), "there are no keys");
        }
    }

    static void errors(Connection connection) throws SQLException {
        try (Statement statement = connection.createStatement()) {
            statement.executeQuery("select * from nothing");
            check(false, "there is no such table");
        } catch (SQLException error) {
            check("42P01".equals(error.getSQLState()), error.getSQLState());
        }
    }

    static void cancel(Connection connection) throws Exception {
        try (Statement statement = connection.createStatement()) {
            Thread other = new Thread(() -> {
                try {
                    Thread.sleep(700);
                    statement.cancel();
                } catch (Exception error) {
                    throw new IllegalStateException(error);
                }
            });
            other.start();
            try {
                statement.executeQuery("select count(*) from many a join many b on a.part = b.part where a.id + b.id = -1");
                check(false, "it was cancelled");
            } catch (SQLException error) {
                check("57014".equals(error.getSQLState()), error.getSQLState() + " " + error.getMessage());
            }
            other.join();
            statement.setQueryTimeout(1);
            try {
                statement.executeQuery("select count(*) from many a join many b on a.part = b.part where a.id + b.id = -1");
                check(false, "it took too long");
            } catch (SQLException error) {
                check("57014".equals(error.getSQLState()), error.getSQLState());
            }
        }
        try (Statement statement = connection.createStatement(); ResultSet rows = statement.executeQuery("select 1")) {
            check(rows.next() && rows.getInt(1) == 1, "it goes on");
        }
    }
}
