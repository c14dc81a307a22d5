import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Statement;
import java.util.ArrayList;
import java.util.List;

/** Arrow Flight SQL's JDBC driver: rows, values, tables, errors. */
public class Flight {
    static void check(boolean holds, String what) {
        if (!holds) {
            throw new AssertionError(what);
        }
    }

    public static void main(String[] words) throws Exception {
        String url = "jdbc:arrow-flight-sql://" + words[0] + "/?useEncryption=false";
        try (Connection connection = DriverManager.getConnection(url)) {
            try (Statement statement = connection.createStatement();
                    ResultSet rows = statement.executeQuery("select id, part from many where id < 3 order by id")) {
                for (long id = 0; id < 3; id++) {
                    check(rows.next() && rows.getLong(1) == id && rows.getInt("part") == id, "row " + id);
                }
                check(!rows.next(), "three rows");
            }
            try (PreparedStatement statement = connection.prepareStatement("select count(*) from many where part = ?")) {
                for (int part = 0; part < 3; part++) {
                    statement.setInt(1, part);
                    try (ResultSet rows = statement.executeQuery()) {
                        check(rows.next() && (rows.getLong(1) == 285_714 || rows.getLong(1) == 285_715), "count");
                    }
                }
            }
            List<String> tables = new ArrayList<>();
            try (ResultSet rows = connection.getMetaData().getTables(null, null, "%", null)) {
                while (rows.next()) {
                    tables.add(rows.getString("TABLE_NAME"));
                }
            }
            check(tables.equals(List.of("kinds", "many", "wide")), "tables " + tables);
            try (Statement statement = connection.createStatement()) {
                statement.executeQuery("select * from nothing");
                check(false, "there is no such table");
            } catch (SQLException error) {
                check(error.getMessage().contains("nothing"), error.getMessage());
            }
        }
        System.out.println("flight jdbc: done");
    }
}
