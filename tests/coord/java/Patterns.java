import com.google.re2j.Pattern;
import com.google.re2j.PatternSyntaxException;
import java.nio.file.Files;
import java.nio.file.Path;

/** Lines of a pattern and names, separated by tabs: which of the names RE2/J finds in it, or that it finds no sense. */
public class Patterns {
    public static void main(String[] arguments) throws Exception {
        StringBuilder answers = new StringBuilder();
        for (String line : Files.readAllLines(Path.of(arguments[0]))) {
            String[] words = line.split("\t", -1);
            try {
                Pattern pattern = Pattern.compile(words[0]);
                for (int at = 1; at < words.length; at++) answers.append(pattern.matcher(words[at]).matches() ? '1' : '0');
            } catch (PatternSyntaxException error) {
                answers.append("invalid");
            }
            answers.append('\n');
        }
        System.out.print(answers);
    }
}
